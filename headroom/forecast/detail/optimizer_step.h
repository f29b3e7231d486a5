// The states that an optimizer keeps of each parameter and the temporaries of its step, as in
// optim/*.cpp, which follow PyTorch's Python optimizers.
#pragma once

#include <cstdint>
#include <deque>

#include "headroom/forecast/detail/tape.h"
#include "headroom/model/run_settings.h"

namespace headroom::forecast::detail {

// Requested bytes, and the same as the allocator rounds them.
struct Sizes {
  std::int64_t bytes = 0, rounded = 0;
};

// The states of one parameter on the card.
[[nodiscard]] Sizes state_of(const model::Settings& settings, const Parameter& parameter);

// The most temporaries of a step over all parameters, besides parameters, gradients and states.
[[nodiscard]] Sizes temporaries_of_step(const model::Settings& settings,
                                        const std::deque<Parameter>& parameters);

// The same for a parameter that is updated alone, in the backward pass.
[[nodiscard]] std::int64_t temporaries_of_one(const model::Settings& settings,
                                              const Parameter& parameter);

}  // namespace headroom::forecast::detail
