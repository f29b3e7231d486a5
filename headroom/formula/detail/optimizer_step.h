// What an optimizer keeps of each parameter, and what its step needs on the way: optim/*.cpp, which
// are PyTorch's Python optimizers.
#pragma once

#include <cstdint>
#include <deque>

#include "headroom/formula/detail/tape.h"
#include "headroom/formula/settings.h"

namespace headroom::formula::detail {

// The bytes, and the same as the allocator rounds them.
struct Sizes {
  std::int64_t bytes = 0, rounded = 0;
};

// What it keeps of one parameter on the card.
[[nodiscard]] Sizes state_of(const Settings& settings, const Parameter& parameter);

// Beside parameters, gradients and states, at most, while all parameters are updated.
[[nodiscard]] Sizes temporaries_of_step(const Settings& settings,
                                        const std::deque<Parameter>& parameters);

// The same for a parameter that is updated alone, in the backward pass.
[[nodiscard]] std::int64_t temporaries_of_one(const Settings& settings, const Parameter& parameter);

}  // namespace headroom::formula::detail
