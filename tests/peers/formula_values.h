// Numbers that C++ and Python both make from a name: transformers_numbers.py has the same.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace headroom {

// FNV-1a.
inline std::uint64_t hash_of(std::string_view content) {
  std::uint64_t word = 0xCBF29CE484222325;
  for (const char c : content) word = (word ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return word;
}

inline std::string hexadecimal(std::uint64_t word) {
  std::string text(16, '0');
  for (std::size_t i = 16; i-- > 0; word >>= 4U) text[i] = "0123456789abcdef"[word & 15U];
  return text;
}

// splitmix64, from the hash of the name on.
inline std::vector<std::uint64_t> bits(std::string_view name, std::int64_t count) {
  std::uint64_t state = hash_of(name);
  std::vector<std::uint64_t> made;
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint64_t z = state += 0x9E3779B97F4A7C15;
    z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27U)) * 0x94D049BB133111EB;
    made.push_back(z ^ (z >> 31U));
  }
  return made;
}

// From -1 to 1, in double.
inline at::Tensor values(std::string_view name, const std::vector<std::int64_t>& sizes) {
  std::vector<double> numbers;
  for (const std::uint64_t word : bits(name, c10::multiply_integers(sizes)))
    numbers.push_back(static_cast<double>(word >> 11U) / 4503599627370496.0 - 1.0);
  return torch::tensor(numbers, at::kDouble).reshape(sizes);
}

inline at::Tensor integers(std::string_view name, const std::vector<std::int64_t>& sizes,
                           std::int64_t low, std::int64_t high) {
  std::vector<std::int64_t> numbers;
  for (const std::uint64_t word : bits(name, c10::multiply_integers(sizes)))
    numbers.push_back(low +
                      static_cast<std::int64_t>(word % static_cast<std::uint64_t>(high - low)));
  return torch::tensor(numbers, at::kLong).reshape(sizes);
}

}  // namespace headroom
