// Whole numbers in few bytes: seven bits a byte, lowest first, small numbers in one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace headroom {

inline constexpr std::size_t kLongestVarint = 10;

// `to` needs room for kLongestVarint bytes. Returns the end.
inline char* put_varint(char* to, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7U) *to++ = static_cast<char>(value | 0x80U);
  *to++ = static_cast<char>(value);
  return to;
}

inline void append_varint(std::string& to, std::uint64_t value) {
  std::array<char, kLongestVarint> bytes;  // NOLINT: put_varint fills the bytes that are used
  to.append(bytes.data(), put_varint(bytes.data(), value));
}

// Maps signed numbers to unsigned ones so that numbers near 0 stay small.
constexpr std::uint64_t zigzag(std::uint64_t difference) {
  return (difference << 1U) ^ (difference >> 63U != 0 ? ~std::uint64_t{0} : 0);
}
constexpr std::uint64_t unzigzag(std::uint64_t value) {
  return (value >> 1U) ^ ((value & 1U) != 0 ? ~std::uint64_t{0} : 0);
}

}  // namespace headroom
