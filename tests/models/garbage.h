// Seeded damage to files that were right.
#pragma once

#include <algorithm>
#include <random>
#include <string>

namespace headroom::models {

// Changes, cuts, repeats and mixes bytes, one to four times; what it puts in is mostly JSON's.
inline std::string mutated(std::string bytes, const std::string& other, std::mt19937& random) {
  const auto below = [&](std::size_t limit) { return random() % std::max<std::size_t>(limit, 1); };
  for (std::size_t times = 1 + below(4); times > 0 && !bytes.empty(); --times) {
    const std::size_t at = below(bytes.size()), length = 1 + below(12);
    switch (below(7)) {
      case 0:
        bytes[at] = static_cast<char>(bytes[at] ^ (1U << below(8)));
        break;
      case 1:
        bytes[at] = "0123456789{}[]\",:-.eE \\"[below(23)];
        break;
      case 2:
        bytes.replace(at, length, length, random() % 2 == 0 ? '\xff' : '9');
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

}  // namespace headroom::models
