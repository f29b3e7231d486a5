// Records the operators and allocations of simulated cards as a profile: the operators are those
// that LibTorch announces (RecordFunction), as PyTorch's own profilers take them; the bytes are
// those of the cards, each under the operator and module that a dry run names for it.
//
// The recorder is LibTorch's current profiler meanwhile, so that LibTorch starts no second one,
// hands it to autograd's threads, and reports the CPU's memory to it.
//
// Threads: start() and stop() on one thread; the cards report their work to it on any.
#pragma once

#include <ATen/record_function.h>
#include <torch/csrc/profiler/orchestration/observer.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "headroom/dryrun/attribution.h"
#include "headroom/gpu/catalogue.h"
#include "headroom/profile/detail/operator_work.h"
#include "headroom/profile/profiler.h"

namespace headroom::profile::detail {

struct OpenCall;

class CallRecorder final : public torch::profiler::impl::ProfilerStateBase,
                           public std::enable_shared_from_this<CallRecorder> {
 public:
  // Null `rates`: those of an A100 80GB.
  CallRecorder(const NamedTensors& tensors, const gpu::CatalogueCard* rates);

  void start();
  void stop();  // also if another thread's, or stopped already: then nothing

  void know(const NamedTensors& tensors);
  void begin_step() { attribution_.begin_step(); }
  // A range that is still open ends here.
  [[nodiscard]] Profile profile();

  void on_operator(const sim::OperatorCall& call);
  void on_event(const allocator::AllocatorEvent& event, const std::string& device);

  // For LibTorch.
  torch::profiler::impl::ActiveProfilerType profilerType() override;
  void reportMemoryUsage(void* pointer, std::int64_t bytes, std::size_t allocated,
                         std::size_t reserved, c10::Device device) override;

 private:
  using Open = std::shared_ptr<OpenCall>;

  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& call);
  static void end(const at::RecordFunction& call, at::ObserverContext* context);
  // The innermost open call of this recorder on this thread.
  [[nodiscard]] Open innermost_here() const;
  [[nodiscard]] Open opened(const at::RecordFunction& call, const Open& outer);
  void close(const at::RecordFunction& call, OpenCall& open);

  // Under the lock, as all below.
  std::size_t add(const std::string& name, const Open& outer);
  void take_module(std::size_t number, trace::Name module);
  Call& add_allocation(const std::string& name, const Open& outer, trace::Name module);
  Call& call_of(const Open& open);
  Call& call_that_allocates(const Open& innermost_call, trace::Name module);
  void sample(const std::string& device, std::int64_t change);

  const gpu::CatalogueCard* const rates_;
  KnownOperators operators_;
  std::mutex mutex_;  // guards the members below; taken after a card's lock
  Profile profile_;
  std::vector<bool> has_module_;            // by call
  std::map<trace::Name, Bytes> allocated_;  // by device
  dryrun::Attribution attribution_;         // has a lock of its own, but shares the names
};

}  // namespace headroom::profile::detail
