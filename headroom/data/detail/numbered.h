// Numbers in file names, with zeros in front: numbered(7, 5) is "00007".
#pragma once

#include <cstdint>
#include <string>

namespace headroom::data::detail {

[[nodiscard]] inline std::string numbered(std::int64_t number, std::size_t digits) {
  const std::string text = std::to_string(number);
  return text.size() >= digits ? text : std::string(digits - text.size(), '0') + text;
}

}  // namespace headroom::data::detail
