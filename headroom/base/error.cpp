#include "headroom/base/error.h"

namespace headroom {

std::string expectation(std::string_view function, std::string_view expected,
                        std::string_view received, std::string_view to_try) {
  std::string text;
  text.append("[").append(function).append("] expected ").append(expected);
  if (received == "none")  // a missing value, not a quoted input
    text.append(", received none");
  else
    text.append(", received '").append(received).append("'");
  if (!to_try.empty()) text.append("; try ").append(to_try);
  return text;
}

}  // namespace headroom
