// A check of an option that takes a whole number: its refusal says which numbers it takes, where
// CLI11's own says "not in range" of a word, too.
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
