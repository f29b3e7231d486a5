// Replays a whole function of the CPU, for fills that must give its numbers, forward and backward.
// They run that function itself, with autograd where gradients are wanted, and draw from the card's
// random state.
//
// Between forward and backward only random states are kept, in memory that no card is charged for.
// A number in a tensor that the operator saves anyway (flash attention's seed, cuDNN's reserve)
// names the state, so the tensor may be copied, moved away and brought back meanwhile.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace headroom::sim::rules {

// A kernel runs below autograd. Within this scope calls start at the top again.
class FromTheTop {
 public:
  explicit FromTheTop(bool with_gradients);

 private:
  c10::impl::ForceDispatchKeyGuard keys_;
  at::AutoGradMode gradients_;
};

// Makes a number for a random state to be kept, the last number of this thread.
[[nodiscard]] std::int64_t number_a_random_state();
[[nodiscard]] std::int64_t last_random_state();
// The CPU generator inside the running card's. Keeps its current state under this thread's last
// number; the process keeps the last 4096 states (5 KiB each).
[[nodiscard]] at::Generator keep_random_state();
// A new generator with that state. Throws DeviceError if the state is gone.
[[nodiscard]] at::Generator random_state(std::int64_t number);

// at::dropout of the CPU in training, with this generator.
[[nodiscard]] at::Tensor dropped_out(const at::Tensor& x, double p, const at::Generator& generator);

// A new leaf over the same memory.
[[nodiscard]] at::Tensor leaf(const at::Tensor& x, bool wants_gradient = true);

// The gradients of `inputs`, by autograd from the outputs that have a gradient.
using OutputAndGradient = std::pair<at::Tensor, std::optional<at::Tensor>>;
[[nodiscard]] std::vector<at::Tensor> gradients_of(const std::vector<OutputAndGradient>& outputs,
                                                   const std::vector<at::Tensor>& inputs);

}  // namespace headroom::sim::rules
