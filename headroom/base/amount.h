// Sizes in options: amounts to reserve or to leave free.
//
//   Bytes need = parse_amount("10GiB", "--need");
//   ShareOrBytes margin = parse_share_or_amount("10%", "--margin");
#pragma once

#include <optional>
#include <string_view>

#include "headroom/base/bytes.h"

namespace headroom {

// Like parse_bytes, for the option `where`, but refuses 0 and plain numbers below 1 MiB: "10" is a
// size without its unit, and the error suggests "10GiB". Throws UsageError.
[[nodiscard]] Bytes parse_amount(std::string_view text, std::string_view where);

struct ShareOrBytes {
  std::optional<double> share;  // from 0 to below 1
  Bytes bytes{};                // without a share
};

// "10%" and bare numbers below 1 are shares; anything else is an amount. Throws UsageError.
[[nodiscard]] ShareOrBytes parse_share_or_amount(std::string_view text, std::string_view where);

}  // namespace headroom
