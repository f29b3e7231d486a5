#include "headroom/sim/dispatch/cuda_operators.h"

#include <string_view>

namespace headroom::sim::embedded {
std::string_view cuda_operators();
}

namespace headroom::sim::detail {

const std::vector<std::string>& cuda_operators() {
  static const std::vector<std::string>& names = *[] {
    auto* const read = new std::vector<std::string>;
    std::string_view text = embedded::cuda_operators();
    while (!text.empty()) {
      const std::size_t end = text.find('\n');
      const std::string_view line = text.substr(0, end);
      if (!line.empty() && line[0] != '#') read->emplace_back(line);
      text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    }
    return read;
  }();
  return names;
}

}  // namespace headroom::sim::detail
