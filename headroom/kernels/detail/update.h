// What a step does to one number: AdamW and SGD in float. One header for CPU and CUDA. Both compile
// it without contracting products and sums, so their results are equal to the bit.
#pragma once

#include <cstdint>

#include "headroom/kernels/detail/both.h"
#include "headroom/kernels/detail/portable.h"

namespace headroom::kernels::detail {

// AdamW's factors in one step.
struct Adamw {
  float beta1, rest1, beta2, rest2;  // rest = 1 - beta
  float keep;                        // of the parameter, after weight decay
  float size, root, epsilon;
};

// By squaring: the mathematical libraries of CPU and CUDA round their powers differently.
HEADROOM_BOTH double power(double base, std::uint32_t exponent) {
  double result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if (exponent & 1) result = result * base;
    base = base * base;
  }
  return result;
}

// `Rates`: those of step.h, which this header cannot include.
template <typename Rates>
HEADROOM_BOTH Adamw adamw_of(const Rates& rates, std::uint32_t step) {
  return {static_cast<float>(rates.beta1),
          static_cast<float>(1 - rates.beta1),
          static_cast<float>(rates.beta2),
          static_cast<float>(1 - rates.beta2),
          static_cast<float>(1 - rates.learning_rate * rates.weight_decay),
          static_cast<float>(rates.learning_rate / (1 - power(rates.beta1, step))),
          static_cast<float>(1 / __builtin_sqrt(1 - power(rates.beta2, step))),
          static_cast<float>(rates.epsilon)};
}

HEADROOM_BOTH void update(const Adamw& by, float gradient, float& parameter, float& mean,
                          float& square) {
  mean = by.beta1 * mean + by.rest1 * gradient;
  square = by.beta2 * square + by.rest2 * gradient * gradient;
  const float divisor = __builtin_sqrtf(square) * by.root + by.epsilon;
  parameter = by.keep * parameter - by.size * mean / divisor;
}

struct Sgd {
  float rate, decay, momentum, rest;  // rest = 1 - dampening
  bool has_momentum, nesterov;
};

template <typename Rates>
HEADROOM_BOTH Sgd sgd_of(const Rates& rates) {
  return {static_cast<float>(rates.learning_rate),
          static_cast<float>(rates.weight_decay),
          static_cast<float>(rates.momentum),
          static_cast<float>(1 - rates.dampening),
          rates.momentum != 0,
          rates.nesterov};
}

HEADROOM_BOTH void update(const Sgd& by, float gradient, float& parameter, float& buffer) {
  gradient = gradient + by.decay * parameter;
  buffer = by.momentum * buffer + by.rest * gradient;
  const float ahead = by.nesterov ? gradient + by.momentum * buffer : buffer;
  parameter = parameter - by.rate * (by.has_momentum ? ahead : gradient);
}

// ---- Blocks of codes with a scale

// Not below the smallest normal float, so that its inverse is finite. By bits: a NaN is the
// largest.
HEADROOM_BOTH float scale_of(std::uint32_t largest_magnitude) {
  constexpr std::uint32_t kSmallest = 0x00800000;
  return float_of(largest_magnitude > kSmallest ? largest_magnitude : kSmallest);
}

// ---- Random bits of a parameter and its two states: one number is mixed for each by an odd
// factor, after which it is as evenly distributed as before.

enum class Rounded { parameter, first, second };

HEADROOM_BOTH std::uint32_t mixed(std::uint32_t random, Rounded what) {
  const std::uint32_t factor = what == Rounded::parameter ? 1u
                               : what == Rounded::first   ? 0x6a4du
                                                          : 0xb5c3u;
  return (random * factor) & 0xffff;
}

}  // namespace headroom::kernels::detail
