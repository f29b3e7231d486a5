#include "headroom/base/error.h"

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

std::string to_string(const Complaint& complaint) {
  return (complaint.where.empty() ? "" : "[" + complaint.where + "] ") + complaint.words;
}

Error::Error(Complaint complaint)
    : std::runtime_error(to_string(complaint)), complaint_(std::move(complaint)) {}

std::string Error::sentence() const {
  return (is_function(complaint_.where) ? "" : complaint_.where + ": ") + complaint_.words;
}

Complaint expectation(std::string_view function, std::string_view expected,
                      std::string_view received, std::string_view to_try) {
  std::string words = "expected " + std::string(expected);
  if (received == "none")  // a missing value, not a quoted input
    words.append(", received none");
  else
    words.append(", received '").append(received).append("'");
  if (!to_try.empty()) words.append("; try ").append(to_try);
  return {std::string(function), std::move(words)};
}

}  // namespace headroom
