// A check for options that take a whole number: the error names the accepted range, while CLI11's
// own says "not in range" even for a word.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "headroom/base/text.h"

namespace headroom::cli {

[[nodiscard]] inline CLI::Validator whole_number(std::int64_t least, std::int64_t most) {
  const auto check = [least, most](const std::string& text) -> std::string {
    const auto number = to_integer(text);
    if (number && *number >= least && *number <= most) return {};
    return "expected a whole number from " + std::to_string(least) + " to " + std::to_string(most) +
           ", received '" + text + "'";
  };
  return {check, ""};
}

}  // namespace headroom::cli
