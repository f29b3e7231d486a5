#include "headroom/data/detail/scaled.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace headroom::data::detail {
namespace {

// The pixels that one result is made of, along one axis.
struct Taps {
  std::size_t first = 0;
  std::vector<float> weights;
};

std::vector<Taps> taps_of(double begin, double length, std::int64_t results, int pixels) {
  const double step = length / static_cast<double>(results), reach = std::max(step, 1.0);
  std::vector<Taps> all;
  for (std::int64_t i = 0; i < results; ++i) {
    const double centre = begin + (static_cast<double>(i) + 0.5) * step;
    const int first = std::clamp(static_cast<int>(std::lround(centre - reach)), 0, pixels - 1),
              end = std::clamp(static_cast<int>(std::lround(centre + reach)), first + 1, pixels);
    Taps taps{.first = static_cast<std::size_t>(first), .weights = {}};
    float sum = 0;
    for (int pixel = first; pixel < end; ++pixel) {
      const double distance = std::abs(pixel + 0.5 - centre) / reach;
      taps.weights.push_back(static_cast<float>(std::max(1 - distance, 0.0)));
      sum += taps.weights.back();
    }
    if (sum == 0) taps.weights.front() = sum = 1;
    for (float& weight : taps.weights) weight /= sum;
    all.push_back(std::move(taps));
  }
  return all;
}

// One row of the image, scaled: three numbers for each of `columns`.
void scale_row(const unsigned char* row, const std::vector<Taps>& columns, float* to) {
  for (const Taps& taps : columns) {
    float red = 0, green = 0, blue = 0;
    const unsigned char* pixel = row + 3 * taps.first;
    for (const float weight : taps.weights) {
      red += weight * static_cast<float>(pixel[0]);
      green += weight * static_cast<float>(pixel[1]);
      blue += weight * static_cast<float>(pixel[2]);
      pixel += 3;
    }
    *to++ = red;
    *to++ = green;
    *to++ = blue;
  }
}

}  // namespace

void scale_into(const Pixels& image, const Part& part, std::int64_t side, bool mirrored,
                const Normalisation& normal, float* to) {
  std::vector<Taps> columns = taps_of(part.x, part.width, side, image.size.width);
  const std::vector<Taps> rows = taps_of(part.y, part.height, side, image.size.height);
  if (mirrored) std::reverse(columns.begin(), columns.end());

  const auto line = static_cast<std::size_t>(3 * side),
             stride = 3 * static_cast<std::size_t>(image.size.width);
  const std::size_t first = rows.front().first,
                    end = rows.back().first + rows.back().weights.size();
  std::vector<float> wide((end - first) * line);  // as wide as the result, not yet as high
  for (std::size_t y = first; y < end; ++y)
    scale_row(image.rgb.data() + y * stride, columns, wide.data() + (y - first) * line);

  std::vector<float> sum(line);
  const auto plane = static_cast<std::size_t>(side) * static_cast<std::size_t>(side);
  for (const Taps& taps : rows) {
    std::fill(sum.begin(), sum.end(), 0.0F);
    for (std::size_t k = 0; k < taps.weights.size(); ++k) {
      const float* const from = wide.data() + (taps.first - first + k) * line;
      for (std::size_t i = 0; i < line; ++i) sum[i] += taps.weights[k] * from[i];
    }
    for (std::size_t i = 0; i < line; ++i) {
      const std::size_t colour = i % 3;
      to[colour * plane + i / 3] = (sum[i] / 255 - normal.mean[colour]) / normal.deviation[colour];
    }
    to += side;
  }
}

}  // namespace headroom::data::detail
