// Made-up pictures that a model can learn to tell apart: stripes, whose direction, width and two
// colours are the class's. Their place, the light and the noise are the seed's.
#pragma once

#include <cstdint>

#include "headroom/data/detail/image_functions.h"

namespace headroom::data::detail {

[[nodiscard]] Pixels picture(const PixelSize& size, std::int64_t label, std::uint64_t seed);

}  // namespace headroom::data::detail
