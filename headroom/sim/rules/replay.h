// For fills that must give the numbers of a whole function of the CPU, forward and backward: they
// run that function itself, with autograd where gradients are wanted, and draw from the card's
// random state.
//
// Between forward and backward nothing is kept but random states, in memory that no card is charged
// for. A number in a tensor that the operator saves anyway (flash attention's seed, cuDNN's
// reserve) says which, so the tensor may be copied, moved away and brought back meanwhile.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstdint>

namespace headroom::sim::rules {

// A kernel runs below autograd; within this scope calls start at the top again.
class FromTheTop {
 public:
  explicit FromTheTop(bool with_gradients);

 private:
  c10::impl::ForceDispatchKeyGuard keys_;
  at::AutoGradMode gradients_;
};

// A number for a state that is kept later on. This thread's last one is the one that is kept.
[[nodiscard]] std::int64_t number_a_random_state();
[[nodiscard]] std::int64_t last_random_state();
// The CPU generator inside the running card's. Its state of now is kept under this thread's last
// number; the last 4096 states of the process stay (5 KiB each).
[[nodiscard]] at::Generator keep_random_state();
// A generator of its own with that state. Throws UsageError if it has gone.
[[nodiscard]] at::Generator random_state(std::int64_t number);

// As at::dropout on the CPU in training, from this generator.
[[nodiscard]] at::Tensor dropped_out(const at::Tensor& x, double p, const at::Generator& generator);

// A leaf of its own over the same memory.
[[nodiscard]] at::Tensor leaf(const at::Tensor& x, bool wants_gradient = true);

}  // namespace headroom::sim::rules
