// One optimizer step over lists of parameters: AdamW with states in 8 or 4 bit, and AdamW and SGD
// for parameters of 16 bits, rounded to nearest or stochastically. They are leaf operators: they
// compute in float, weight decay included, write into the tensors that they are given, round each
// number once and ask for no memory but some KiB of a thread's stack. CPU and CUDA give the same
// bits, however many threads there are.
//
//   kernels::StepLists lists{.parameters = parameters, .gradients = gradients, .steps = steps};
//   kernels::compact_adamw_(lists, states, {.learning_rate = 1e-3});
//   lists.numbers = {0, 1, 2};  // stochastic rounding tells the parameters apart by them
//   kernels::compact_adamw_(lists, states, {.learning_rate = 1e-3}, {.stochastic = true, .seed = 7});
//
// As at::_fused_adamw_ does, they read the step counts, the loss scale and whether the step is to
// be skipped on the device; the caller counts the steps before, and takes a skipped one back. A
// tensor's random bits depend on the seed, its step count, its number and the place in it, and on
// nothing else: a step that is repeated repeats its bits.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace headroom::kernels {

using Tensors = std::vector<at::Tensor>;

// All tensors are on one device. A parameter and its gradient have one type, float, bfloat16 or
// half, and lie densely in memory in the same order.
struct StepLists {
  Tensors parameters = {}, gradients = {};
  Tensors steps = {};                      // float numbers: this step is the first one at 1
  std::vector<std::int64_t> numbers = {};  // one a parameter, for stochastic rounding only
  // Float numbers. The gradients are too large by `scale`, and are divided by it where they lie; if
  // `not_finite` is 1, nothing happens.
  std::optional<at::Tensor> scale = {}, not_finite = {};
};

struct AdamwRates {
  double learning_rate = 1e-3, beta1 = 0.9, beta2 = 0.999, weight_decay = 1e-2, epsilon = 1e-8;
};

struct SgdRates {
  double learning_rate = 1e-3, momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false;
};

struct Rounding {
  bool stochastic = false;
  std::uint64_t seed = 0;
};

// Blocks of codes, each with a float scale: two bytes and 1/32 a parameter in 8 bit, one and 1/16
// in 4.
struct CompactStates {
  int bits = 8;  // 8: blocks of 256; 4: blocks of 128, two codes a byte, the first in the high half
  Tensors first = {}, second = {};  // uint8
  Tensors first_scales = {}, second_scales = {};
};
[[nodiscard]] std::int64_t code_bytes(std::int64_t numbers, int bits);
[[nodiscard]] std::int64_t code_blocks(std::int64_t numbers, int bits);

void compact_adamw_(const StepLists& lists, const CompactStates& states, const AdamwRates& rates,
                    const Rounding& rounding = {});

// The states are float or of the parameter's type. Stochastic rounding includes them.
void adamw_(const StepLists& lists, const Tensors& means, const Tensors& squares,
            const AdamwRates& rates, const Rounding& rounding = {});

// Without momentum there are no buffers. If a buffer is zero and dampening is 0, the step sets it
// to the gradient. Steps are needed for stochastic rounding only.
void sgd_(const StepLists& lists, const Tensors& buffers, const SgdRates& rates,
          const Rounding& rounding = {});

}  // namespace headroom::kernels
