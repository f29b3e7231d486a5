#include "headroom/sim/dispatch/cuda_operators.h"

#include <sstream>
#include <string_view>

#include "headroom/libtorch/versions.h"

namespace headroom::sim::embedded {
std::string_view cuda_operators();
}

namespace headroom::sim::detail {
namespace {

// A line of the file: "cholesky until 2.13".
struct Line {
  explicit Line(const std::string& text) {
    std::istringstream words(text);
    words >> name;
    for (std::string bound, version; words >> bound >> version;)
      (bound == "since" ? first : last) = std::stoi(version.substr(version.find('.') + 1));
  }

  std::string name;
  int first = 0, last = 99;  // minor versions
};

std::vector<Line> lines() {
  std::vector<Line> read;
  std::istringstream text{std::string(embedded::cuda_operators())};
  for (std::string line; std::getline(text, line);)
    if (!line.empty() && line[0] != '#') read.emplace_back(line);
  return read;
}

}  // namespace

const std::vector<std::string>& cuda_operators() {
  static const std::vector<std::string>& names = *[] {
    auto* const here = new std::vector<std::string>;
    for (Line& line : lines())
      if (line.first <= libtorch::kMinor && libtorch::kMinor <= line.last)
        here->push_back(std::move(line.name));
    return here;
  }();
  return names;
}

std::vector<std::string> cuda_operators_of_all_versions() {
  std::vector<std::string> names;
  for (Line& line : lines()) names.push_back(std::move(line.name));
  return names;
}

}  // namespace headroom::sim::detail
