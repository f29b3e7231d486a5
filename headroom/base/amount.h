// Sizes as people give them to options: to reserve, or to leave free.
//
//   Bytes need = parse_amount("10GiB", "--need");
//   ShareOrBytes margin = parse_share_or_amount("10%", "--margin");
#pragma once

#include <optional>
#include <string_view>

#include "headroom/base/bytes.h"

namespace headroom {

// As parse_bytes, for the option `where`, but "10" and "0" are refused: 10 bytes are never meant,
// and "try 10GiB" is what was. Throws UsageError.
[[nodiscard]] Bytes parse_amount(std::string_view text, std::string_view where);

struct ShareOrBytes {
  std::optional<double> share;  // from 0 to below 1
  Bytes bytes{};                // without a share
};

// "10%" and bare numbers below 1 are shares; anything else is an amount. Throws UsageError.
[[nodiscard]] ShareOrBytes parse_share_or_amount(std::string_view text, std::string_view where);

}  // namespace headroom
