// To which module and phase an operator belongs, told from what it takes and where it runs:
// LibTorch has no hooks for modules in C++.
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

#include "headroom/dryrun/dry_run.h"
#include "headroom/sim/watcher.h"
#include "headroom/trace/event.h"

namespace headroom::dryrun::detail {

// "h.0.attn" of "h.0.attn.weight"; "" of a tensor of the model itself.
[[nodiscard]] std::string module_of(const std::string& tensor);

struct Whereabouts {
  trace::Name module = 0;
  trace::Phase phase = trace::Phase::forward;
};

// Threads: on_operator and now() from any; the rest from the thread of the dry run.
class Attribution {
 public:
  Attribution(const Subject& subject, trace::Names& names);

  void begin_step();
  // Answers true after a backward pass, up to the first operator of the next forward pass: the
  // gradients are there, and at the first true nothing has used them yet.
  bool on_operator(const sim::OperatorCall& call);
  // Of what happens on this thread now.
  [[nodiscard]] Whereabouts now() const;

  // The parameters known so far: of the subject, and those that were met.
  [[nodiscard]] std::vector<at::Tensor> parameters() const;

 private:
  // Module changes of a forward thread, by autograd's count of the nodes made on it.
  using Changes = std::vector<std::pair<std::uint64_t, trace::Name>>;

  void look_at(const at::Tensor& argument, bool is_embedding,
               std::unordered_set<trace::Name>& modules, bool& needs_gradient);
  void note_module(trace::Name module);
  [[nodiscard]] trace::Name module_of_backward() const;
  [[nodiscard]] trace::Phase phase_now(bool needs_gradient) const;

  // Threads remember where they were, longer than one of these lives; an address would come again.
  const std::uint64_t id_;
  // Of a parameter that two modules share, an embedding is meant by the first, all else by the
  // last.
  struct Owners {
    trace::Name first = 0, last = 0;
  };
  std::unordered_map<const c10::StorageImpl*, Owners> owners_;  // of parameters and buffers
  mutable std::mutex mutex_;                                    // of the next three
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>> parameters_;
  std::unordered_set<const c10::TensorImpl*> met_;
  std::unordered_map<std::uint64_t, Changes> changes_;  // by autograd's number of the thread
  std::atomic<bool> after_backward_{false};
};

}  // namespace headroom::dryrun::detail
