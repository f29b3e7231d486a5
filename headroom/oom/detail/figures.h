// The amounts and the device number that an out-of-memory message names.
#pragma once

#include <optional>
#include <string_view>

#include "headroom/base/bytes.h"

namespace headroom::oom::detail {

struct Figures {
  std::optional<Bytes> asked, total, free, cached;
  std::optional<int> device;
};

// `text`: as in Line::text. An amount beyond int64_t saturates.
[[nodiscard]] Figures figures_in(std::string_view text);

// More than any device or host has: the size itself is wrong, so a smaller batch would not help.
inline constexpr Bytes kBeyondAnyDevice{std::int64_t{1} << 46};

}  // namespace headroom::oom::detail
