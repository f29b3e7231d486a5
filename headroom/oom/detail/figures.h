// The amounts and the device number that an out-of-memory message names.
#pragma once

#include <optional>
#include <string_view>

#include "headroom/base/bytes.h"

namespace headroom::oom::detail {

struct Figures {
  std::optional<Bytes> asked, total, free;
  std::optional<int> device;
};

// `text` as Line::text has it. An amount that no int64_t holds is the largest that it holds.
[[nodiscard]] Figures figures_in(std::string_view text);

// More than any device or host has: the size itself is wrong, and less of everything would not
// help.
inline constexpr Bytes kBeyondAnyDevice{std::int64_t{1} << 46};

}  // namespace headroom::oom::detail
