#include "headroom/data/detail/picture.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "headroom/data/detail/random.h"

namespace headroom::data::detail {
namespace {

constexpr double kPi = 3.14159265358979323846;

using Colour = std::array<double, 3>;  // red, green, blue: 0 to 255

// Once around the colours as `turn` goes from 0 to 1.
Colour colour(double turn) {
  Colour result{};
  for (std::size_t i = 0; i < 3; ++i)
    result[i] = 127.5 + 127.5 * std::cos(2 * kPi * (turn - static_cast<double>(i) / 3));
  return result;
}

// From 0 to 1, far apart for neighbouring labels: multiples of an irrational number.
double spread(std::int64_t label, double step) {
  const double turn = static_cast<double>(label) * step;
  return turn - std::floor(turn);
}

}  // namespace

Pixels picture(const PixelSize& size, std::int64_t label, std::uint64_t seed) {
  constexpr double kGolden = 0.6180339887498949, kPlastic = 0.7548776662466927,
                   kOther = 0.5698402909980532;
  const double angle = kPi * spread(label, kPlastic), stripes = 2 + 6 * spread(label, kOther);
  const Colour light = colour(spread(label, kGolden)), dark = colour(spread(label, kOther) + 0.4);
  Dice dice(seed);
  const double phase = 2 * kPi * dice.unit(), brightness = dice.between(0.7, 1.0);
  const double wave = 2 * kPi * stripes / std::min(size.width, size.height);
  const double across = wave * std::cos(angle), down = wave * std::sin(angle);
  Pixels pixels{.size = size, .rgb = {}};
  for (int y = 0; y < size.height; ++y)
    for (int x = 0; x < size.width; ++x) {
      const double share = 0.5 + 0.5 * std::sin(across * x + down * y + phase),
                   noise = dice.between(-25, 25);
      for (std::size_t i = 0; i < 3; ++i) {
        const double value = brightness * (share * light[i] + (1 - share) * dark[i]) + noise;
        pixels.rgb.push_back(static_cast<unsigned char>(std::clamp(value, 0.0, 255.0)));
      }
    }
  return pixels;
}

}  // namespace headroom::data::detail
