// Seeded damage to files that were right.
#pragma once

#include <algorithm>
#include <random>
#include <string>
#include <string_view>

namespace headroom::testing {

// Characters that a file of JSON is likely to hold.
inline constexpr std::string_view kOfJson = "0123456789{}[]\",:-.eE \\";

// Changes, cuts, repeats and mixes bytes, one to four times. What is put in is one of `likely`;
// empty: any byte.
inline std::string mutated(std::string bytes, const std::string& other, std::mt19937& random,
                           std::string_view likely = {}) {
  const auto below = [&](std::size_t limit) { return random() % std::max<std::size_t>(limit, 1); };
  for (std::size_t times = 1 + below(4); times > 0 && !bytes.empty(); --times) {
    const std::size_t at = below(bytes.size()), length = 1 + below(16);
    switch (below(7)) {
      case 0:
        bytes[at] = static_cast<char>(bytes[at] ^ (1U << below(8)));
        break;
      case 1:
        bytes[at] = likely.empty() ? static_cast<char>(random()) : likely[below(likely.size())];
        break;
      case 2:
        bytes.replace(at, length, length,
                      random() % 2 == 0 ? '\xff'
                      : likely.empty()  ? '\0'
                                        : likely[0]);
        break;
      case 3:
        bytes.erase(at, length);
        break;
      case 4:
        bytes.insert(at, bytes.substr(below(bytes.size()), length));
        break;
      case 5:
        bytes.resize(at);
        break;
      default:
        bytes.insert(at, other.substr(below(other.size()), 4 * length));
    }
  }
  return bytes;
}

}  // namespace headroom::testing
