#include "headroom/base/sentence.h"

#include <algorithm>
#include <cctype>

namespace headroom {
namespace {

bool is_function(const std::string& name) {
  return std::all_of(name.begin(), name.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == ':';
  });
}

}  // namespace

std::string sentence_of(const std::string& what) {
  const std::size_t end = what.starts_with("[") ? what.find("] ") : std::string::npos;
  if (end == std::string::npos) return what;
  const std::string name = what.substr(1, end - 1);
  return (is_function(name) ? "" : name + ": ") + what.substr(end + 2);
}

}  // namespace headroom
