// Chance from a seed: the same on every machine and with every compiler, which the distributions of
// the standard library are not.
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <random>
#include <vector>

namespace headroom::oracle {

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : random_(seed) {}

  std::uint64_t below(std::uint64_t n) { return random_() % n; }
  std::int64_t between(std::int64_t first, std::int64_t last) {
    return first + static_cast<std::int64_t>(below(static_cast<std::uint64_t>(last - first + 1)));
  }
  bool one_in(std::uint64_t n) { return below(n) == 0; }
  double fraction() { return static_cast<double>(random_() >> 11) * 0x1p-53; }
  // Every power of two equally often.
  std::int64_t log_between(std::int64_t first, std::int64_t last) {
    const double low = std::log2(static_cast<double>(first));
    const double high = std::log2(static_cast<double>(last) + 1);
    const auto value = static_cast<std::int64_t>(std::exp2(low + (high - low) * fraction()));
    return value < first ? first : value > last ? last : value;
  }
  template <typename Value>
  Value pick(std::initializer_list<Value> values) {
    return values.begin()[below(values.size())];
  }
  template <typename Value>
  const Value& pick(const std::vector<Value>& values) {
    return values[below(values.size())];
  }

 private:
  std::mt19937_64 random_;
};

}  // namespace headroom::oracle
