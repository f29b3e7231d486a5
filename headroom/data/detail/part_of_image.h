// The part of an image that an example shows.
#pragma once

#include "headroom/data/detail/image_functions.h"
#include "headroom/data/detail/random.h"
#include "headroom/data/detail/scaled.h"
#include "headroom/data/image_set.h"

namespace headroom::data::detail {

// The part that torchvision's Resize and CenterCrop leave.
[[nodiscard]] Part central_part(const PixelSize& image, const ImageOptions& options);

// A part as its RandomResizedCrop chooses it: between `smallest_part` and all of the area, and
// between 3:4 and 4:3.
[[nodiscard]] Part random_part(const PixelSize& image, const ImageOptions& options, Dice& dice);

// How much smaller the image may be decoded: 1, 2, 4 or 8, so that this part of it still has two
// pixels for each one wanted.
[[nodiscard]] int divisor_for(const Part& part, const ImageOptions& options);

}  // namespace headroom::data::detail
