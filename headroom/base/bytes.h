// A number of bytes, with a type, so that 5 MiB can never be added to 5 seconds.
//
// Sizes are bytes everywhere inside Headroom; MiB and GiB exist only where a person reads or types
// them. `Bytes` is signed, because differences ("short by 3 GiB") are as common as amounts.
//
//   Bytes need = parse_bytes("10GiB");
//   if (card.free < need) say("short by " + to_string(need - card.free));
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

namespace headroom {

struct Bytes {
  std::int64_t count = 0;

  constexpr Bytes() = default;
  constexpr explicit Bytes(std::int64_t bytes) : count(bytes) {}

  constexpr auto operator<=>(const Bytes&) const = default;
  constexpr Bytes& operator+=(Bytes other) { return count += other.count, *this; }
  constexpr Bytes& operator-=(Bytes other) { return count -= other.count, *this; }

  [[nodiscard]] constexpr double mib() const { return static_cast<double>(count) / (1 << 20); }
  [[nodiscard]] constexpr double gib() const { return static_cast<double>(count) / (1 << 30); }
};

constexpr Bytes operator+(Bytes a, Bytes b) {
  return Bytes{a.count + b.count};
}
constexpr Bytes operator-(Bytes a, Bytes b) {
  return Bytes{a.count - b.count};
}
constexpr Bytes operator*(Bytes a, std::int64_t times) {
  return Bytes{a.count * times};
}
constexpr Bytes operator*(std::int64_t times, Bytes a) {
  return a * times;
}
constexpr Bytes operator/(Bytes a, std::int64_t parts) {
  return Bytes{a.count / parts};
}
constexpr double ratio(Bytes a, Bytes b) {
  return static_cast<double>(a.count) / static_cast<double>(b.count);
}

// "512MiB", "10GiB", "1.5 GiB", "24GB" (decimal), "4096" (plain bytes). Units may be in any case;
// the space is optional. Throws UsageError for negative sizes, sizes of 8 EiB or more, and other
// text.
[[nodiscard]] Bytes parse_bytes(std::string_view text);

// For people: "10.00 GiB", "512.0 MiB", "9.9 KiB", "17 B"; negative amounts keep their sign.
[[nodiscard]] std::string to_string(Bytes size);

namespace literals {
constexpr Bytes operator""_B(unsigned long long n) {
  return Bytes{static_cast<std::int64_t>(n)};
}
constexpr Bytes operator""_KiB(unsigned long long n) {
  return operator""_B(n) * (1LL << 10);
}
constexpr Bytes operator""_MiB(unsigned long long n) {
  return operator""_B(n) * (1LL << 20);
}
constexpr Bytes operator""_GiB(unsigned long long n) {
  return operator""_B(n) * (1LL << 30);
}
constexpr Bytes operator""_MB(unsigned long long n) {
  return operator""_B(n)*1'000'000;
}
constexpr Bytes operator""_GB(unsigned long long n) {
  return operator""_B(n)*1'000'000'000;
}
constexpr Bytes operator""_GiB(long double n) {
  return Bytes{static_cast<std::int64_t>(n * (1LL << 30))};
}
}  // namespace literals

}  // namespace headroom
