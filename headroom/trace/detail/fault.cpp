#include "headroom/trace/detail/fault.h"

#include "headroom/base/error.h"

namespace headroom::trace::detail {

std::string shown(std::string_view bytes) {
  constexpr std::size_t kLongest = 60;
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const char c : bytes.substr(0, kLongest)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      text += c;
    } else {
      text += {'\\', 'x', kDigits[byte >> 4U], kDigits[byte & 0xfU]};
    }
  }
  return bytes.size() > kLongest ? text + "..." : text;
}

void fault(const std::string& file, std::uint64_t byte, const std::string& expected,
           const std::string& received, std::string_view to_try) {
  throw InputError(expectation(
      "trace", expected + " at byte " + std::to_string(byte) + " of " + file, received, to_try));
}

}  // namespace headroom::trace::detail
