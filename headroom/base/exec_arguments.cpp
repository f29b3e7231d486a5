#include "headroom/base/exec_arguments.h"

#include <unistd.h>

#include <algorithm>
#include <string_view>

namespace headroom {

std::vector<std::string> environment_with(const std::vector<std::string>& extra) {
  std::vector<std::string> result = extra;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('=') + 1);
    const auto overrides = [&](const std::string& other) { return other.starts_with(name); };
    if (name.empty() || std::none_of(extra.begin(), extra.end(), overrides))
      result.emplace_back(text);
  }
  return result;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace headroom
