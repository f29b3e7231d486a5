// Common parts of image models.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "headroom/forecast/detail/architectures.h"

namespace headroom::forecast::detail {

// A convolution with its own parameters. `image`: the size of `x`, then that of the result.
[[nodiscard]] Value convolved(Network& net, const Value& x, Image& image, const Convolution& of,
                              bool with_bias);

[[nodiscard]] Value pixels_of(const Network& net, std::int64_t channels);

}  // namespace headroom::forecast::detail
