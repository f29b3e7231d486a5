#include "headroom/data/detail/part_of_image.h"

#include <algorithm>
#include <cmath>

namespace headroom::data::detail {
namespace {

// Python's round(): halves go to the even number.
double rounded(double value) {
  return std::nearbyint(value);
}

// The largest part in the middle whose width is `lowest` to `highest` times its height.
Part middle_part(double width, double height, double lowest, double highest) {
  const double part_width = std::min(width, rounded(height * highest)),
               part_height = std::min(height, rounded(width / lowest));
  return {std::floor((width - part_width) / 2), std::floor((height - part_height) / 2), part_width,
          part_height};
}

}  // namespace

Part central_part(const PixelSize& image, const ImageOptions& options) {
  const double width = image.width, height = image.height, shorter = std::min(width, height),
               side = static_cast<double>(options.side), scaled = rounded(side / options.crop),
               scaled_width = std::floor(scaled * width / shorter),
               scaled_height = std::floor(scaled * height / shorter);
  const double across = width / scaled_width, down = height / scaled_height;
  return {rounded((scaled_width - side) / 2) * across, rounded((scaled_height - side) / 2) * down,
          side * across, side * down};
}

Part random_part(const PixelSize& image, const ImageOptions& options, Dice& dice) {
  constexpr int kTries = 10;
  constexpr double kLowest = 3.0 / 4, kHighest = 4.0 / 3;
  const double width = image.width, height = image.height;
  for (int i = 0; i < kTries; ++i) {
    const double area = width * height * dice.between(options.smallest_part, 1),
                 shape = std::exp(dice.between(std::log(kLowest), std::log(kHighest))),
                 part_width = rounded(std::sqrt(area * shape)),
                 part_height = rounded(std::sqrt(area / shape));
    if (part_width < 1 || part_height < 1 || part_width > width || part_height > height) continue;
    const auto room = [](double all, double part) {
      return static_cast<std::int64_t>(all - part) + 1;
    };
    const auto x = static_cast<double>(dice.below(room(width, part_width))),
               y = static_cast<double>(dice.below(room(height, part_height)));
    return {x, y, part_width, part_height};
  }
  return middle_part(width, height, kLowest, kHighest);
}

int divisor_for(const Part& part, const ImageOptions& options) {
  const double most = std::min(part.width, part.height) / static_cast<double>(2 * options.side);
  for (const int divisor : {8, 4, 2})
    if (divisor <= most) return divisor;
  return 1;
}

}  // namespace headroom::data::detail
