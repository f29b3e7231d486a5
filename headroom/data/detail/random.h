// Random numbers that depend on their purpose, and on nothing that happened before: threads draw
// them in any order and get the same ones.
//
//   Dice dice(mixed(seed, {epoch, index}));
//   if (dice.below(2) == 1) mirror();
//
// The numbers are the same on every machine, unlike those of the distributions in <random>.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace headroom::data::detail {

// A number that looks random, and another one for each input (the finisher of SplitMix64: Steele,
// Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
[[nodiscard]] constexpr std::uint64_t scrambled(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// A seed made of a seed and of numbers that name its purpose.
[[nodiscard]] constexpr std::uint64_t mixed(std::uint64_t seed,
                                            std::initializer_list<std::int64_t> purpose) {
  for (const std::int64_t one : purpose)
    seed = scrambled(seed ^ scrambled(static_cast<std::uint64_t>(one)));
  return seed;
}

class Dice {
 public:
  constexpr explicit Dice(std::uint64_t seed) : seed_(seed) {}

  constexpr std::uint64_t next() { return scrambled(seed_ ^ scrambled(count_++)); }
  // From 0 to n - 1. The numbers here are far below 2^64: no bias that could be seen.
  constexpr std::int64_t below(std::int64_t n) {
    return static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(n));
  }
  // From 0 to 1, without 1.
  constexpr double unit() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  constexpr double between(double low, double high) { return low + (high - low) * unit(); }

 private:
  std::uint64_t seed_;
  std::uint64_t count_ = 0;
};

}  // namespace headroom::data::detail
