// Which part of an image an example shows.
#pragma once

#include "headroom/data/detail/image_functions.h"
#include "headroom/data/detail/random.h"
#include "headroom/data/detail/scaled.h"
#include "headroom/data/image_set.h"

namespace headroom::data::detail {

// What torchvision's Resize and CenterCrop leave of an image.
[[nodiscard]] Part central_part(const PixelSize& image, const ImageOptions& options);

// What its RandomResizedCrop chooses: a part of `smallest_part` to all of the area, between 3:4 and
// 4:3.
[[nodiscard]] Part random_part(const PixelSize& image, const ImageOptions& options, Dice& dice);

// How much smaller the image may be decoded: 1, 2, 4 or 8, so that this part of it still has two
// pixels for each one wanted.
[[nodiscard]] int divisor_for(const Part& part, const ImageOptions& options);

}  // namespace headroom::data::detail
