// Amounts of memory as logs print them: "304.00 MiB", "25,600,000 bytes", "2.12G", "643840".
#pragma once

#include <optional>
#include <string_view>

#include "headroom/base/bytes.h"

namespace headroom::oom::detail {

struct Amount {
  Bytes bytes;            // saturates at the largest int64_t
  bool has_unit = false;  // "bytes" is one; a number without a unit counts as bytes
  std::size_t end = 0;    // the position after its last character
};

// The amount that begins exactly at `at`; `text` is in lower case.
[[nodiscard]] std::optional<Amount> amount_at(std::string_view text, std::size_t at);

[[nodiscard]] bool is_digit(char c);

// The position after a number that begins at `at` ("1,024", "0.5"); `at` itself if there is none.
[[nodiscard]] std::size_t after_number(std::string_view text, std::size_t at);

}  // namespace headroom::oom::detail
