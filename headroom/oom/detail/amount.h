// Amounts of memory as logs print them: "304.00 MiB", "25,600,000 bytes", "2.12G", "643840".
#pragma once

#include <optional>
#include <string_view>

#include "headroom/base/bytes.h"

namespace headroom::oom::detail {

struct Amount {
  Bytes bytes;            // an amount that no int64_t holds is the largest that it holds
  bool has_unit = false;  // "bytes" is one; without any the number is taken for bytes
  std::size_t end = 0;    // behind its last character
};

// The amount that begins exactly at `at`, in a text of lower case.
[[nodiscard]] std::optional<Amount> amount_at(std::string_view text, std::size_t at);

[[nodiscard]] bool is_digit(char c);

// Behind a number that begins at `at` ("1,024", "0.5"); `at` itself if none does.
[[nodiscard]] std::size_t after_number(std::string_view text, std::size_t at);

}  // namespace headroom::oom::detail
