// Launches an optimizer's step of one tensor on a CUDA stream. No CUDA header, so that
// step_operators.cpp beside it and step.cu agree without one. Each returns the runtime's error
// code, 0 for success.
#pragma once

#include "headroom/kernels/detail/step_work.h"

struct CUstream_st;

namespace headroom::kernels::cuda {

// What the device reads before it steps.
struct OnDevice {
  const float* step;        // null if nothing needs it
  const float* not_finite;  // null: the step is not skipped
};

struct AdamwFactors {
  double learning_rate, beta1, beta2, weight_decay, epsilon;
};

int adamw(const detail::Work& work, const AdamwFactors& factors, const OnDevice& on,
          CUstream_st* stream);
int compact_adamw(const detail::Work& work, const detail::Compact& states,
                  const AdamwFactors& factors, const OnDevice& on, CUstream_st* stream);
int sgd(const detail::Work& work, const detail::Sgd& by, const OnDevice& on, CUstream_st* stream);

}  // namespace headroom::kernels::cuda
