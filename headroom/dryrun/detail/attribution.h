// Finds the module and phase of an operator from its arguments and its thread: LibTorch has no
// module hooks in C++.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "headroom/dryrun/subject.h"
#include "headroom/sim/observer.h"
#include "headroom/trace/event.h"

namespace headroom::dryrun::detail {

// "h.0.attn" for "h.0.attn.weight"; "" for a tensor of the model itself.
[[nodiscard]] std::string module_of(const std::string& tensor);

struct Whereabouts {
  trace::Name module = 0;
  trace::Phase phase = trace::Phase::forward;
};

// Threads: on_operator() and now() from any thread; the rest from the thread of the dry run.
class Attribution {
 public:
  Attribution(const Subject& subject, trace::Names& names);

  void begin_step();
  // Returns true after a backward pass, up to the first operator of the next forward pass: the
  // gradients exist, and at the first true no operator has used them yet.
  bool on_operator(const sim::OperatorCall& call);
  // The module and phase of this thread now.
  [[nodiscard]] Whereabouts now() const;

  // The parameters known so far: those of the subject and those that operators used.
  [[nodiscard]] std::vector<at::Tensor> parameters() const;

 private:
  // Module changes of a forward thread, by autograd's count of the nodes made on it.
  using Changes = std::vector<std::pair<std::uint64_t, trace::Name>>;

  void look_at(const at::Tensor& argument, bool is_embedding,
               std::unordered_set<trace::Name>& modules, bool& needs_gradient);
  void note_module(trace::Name module);
  [[nodiscard]] trace::Name module_of_backward() const;
  [[nodiscard]] trace::Phase phase_now(bool needs_gradient) const;

  // Thread-local state outlives an Attribution. It stores this id, because an address may be
  // reused.
  const std::uint64_t id_;
  // For a parameter shared by several modules, an embedding belongs to the first of them, every
  // other operator to the last.
  struct Owners {
    trace::Name first = 0, last = 0;
  };
  std::unordered_map<const c10::StorageImpl*, Owners> owners_;  // of parameters and buffers
  mutable std::mutex mutex_;                                    // guards the next three
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>> parameters_;
  std::unordered_set<const c10::TensorImpl*> met_;
  std::unordered_map<std::uint64_t, Changes> changes_;  // by autograd's number of the thread
  std::atomic<bool> after_backward_{false};
};

}  // namespace headroom::dryrun::detail
