// A part of an image, scaled to a square of normalised numbers, as a model gets it.
#pragma once

#include <array>
#include <cstdint>

#include "headroom/data/detail/image_functions.h"

namespace headroom::data::detail {

// A part of an image: where it begins and how large it is, in pixels and parts of them.
struct Part {
  double x = 0, y = 0, width = 0, height = 0;
};

struct Normalisation {
  std::array<float, 3> mean, deviation;
};

// Writes [3, side, side] numbers to `to`: first all red ones, row by row. Bilinear and antialiased:
// each result is the mean of the pixels around it, weighted by a triangle that is as wide as two
// pixels of the larger of the two grids. Pillow computes the same, and rounds in between.
void scale_into(const Pixels& image, const Part& part, std::int64_t side, bool mirrored,
                const Normalisation& normal, float* to);

}  // namespace headroom::data::detail
