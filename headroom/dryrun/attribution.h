// Finds the module and phase of an operator from its arguments and its thread: LibTorch has no
// module hooks in C++. Where calls of modules are reported (module_calls.h), the innermost one
// counts, or its child whose parameters the operator uses.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "headroom/dryrun/subject.h"
#include "headroom/sim/observer.h"
#include "headroom/trace/event.h"

namespace headroom::dryrun {

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

  // A model that appeared later. No other thread may use the names meanwhile.
  void know(const Subject& subject);
  void begin_step();
  // Around a step of an optimizer. Not needed if every operation between a backward pass and the
  // optimizer is one without a graph, or on single numbers.
  void begin_optimizer();
  void end_optimizer();
  // While true, work without a graph is evaluation; else forward, as in a checkpoint's first pass.
  void evaluate(bool evaluates) { evaluates_ = evaluates; }
  struct Seen {
    bool is_backward = false;
    // True after a backward pass, up to the first operator of the next forward pass: the gradients
    // exist, and at the first true no operator has used them yet.
    bool after_backward = false;
  };
  Seen on_operator(const sim::OperatorCall& call);
  // The module and phase of this thread now.
  [[nodiscard]] Whereabouts now() const;

  // The parameters known so far: those of the subject and those that operators used.
  [[nodiscard]] std::vector<at::Tensor> parameters() const;

 private:
  // A thread between two operators.
  struct Thread {
    Whereabouts at;
    std::uint64_t nodes = 0;  // autograd nodes made on this thread so far
    // Its changes of modules in forward passes, by the count of nodes.
    std::vector<std::pair<std::uint64_t, trace::Name>> changes;
  };
  // The facts that an operator's arguments give.
  struct Arguments {
    std::optional<trace::Name> module;  // of the parameters
    bool has_several_modules = false, needs_gradient = false;
    bool are_single_numbers = true, has_leaf_with_gradient = false;
  };

  void look_at(const at::Tensor& argument, bool is_embedding, Arguments& found);
  // Work on single numbers that have a graph, and are not parameters.
  [[nodiscard]] static bool is_sum_of_losses(const Arguments& found);
  // Under the lock, as those below.
  [[nodiscard]] Thread& this_thread();
  static void note_module(Thread& thread, trace::Name module);
  [[nodiscard]] trace::Name module_of_backward(const Thread& thread) const;
  [[nodiscard]] trace::Name module_of_call(const Arguments& found) const;
  void note_forward(Thread& thread, const Arguments& found, trace::Phase phase);
  [[nodiscard]] trace::Phase phase_now(bool needs_gradient) const;

  // For a parameter shared by several modules, an embedding belongs to the first of them, every
  // other operator to the last.
  struct Owners {
    trace::Name first = 0, last = 0;
  };
  trace::Names& names_;
  mutable std::mutex mutex_;  // guards all members below
  bool calls_are_told_ = false;
  std::unordered_map<const c10::StorageImpl*, Owners> owners_;  // of parameters and buffers
  std::unordered_map<std::string, trace::Name> modules_;        // by their names
  std::unordered_map<trace::Name, std::string> texts_;          // the same, for other threads
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>> parameters_;
  std::unordered_set<const c10::TensorImpl*> met_;
  std::unordered_map<std::uint64_t, Thread> threads_;  // by autograd's number
  std::atomic<bool> after_backward_{false};
  std::atomic<bool> evaluates_{false};
};

}  // namespace headroom::dryrun
