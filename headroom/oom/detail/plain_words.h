// Common phrases for a lack of memory, for programs without rules of their own.
#pragma once

#include <optional>
#include <string_view>

#include "headroom/oom/detail/pattern.h"

namespace headroom::oom::detail {

// "out of memory", "could not allocate 3 GB", "buffer allocation failed" at or after `from`, if it
// begins before `first_line`. An allocation of nodes, ports or licenses does not count.
[[nodiscard]] std::optional<Span> memory_shortage(std::string_view text, std::size_t first_line,
                                                  std::size_t from = 0);

// Words that name the side of the memory: device or host.
[[nodiscard]] bool speaks_of_device(std::string_view text);
[[nodiscard]] bool speaks_of_host(std::string_view text);

// ENOMEM, which the system also returns for limits other than memory.
[[nodiscard]] bool is_error_12(std::string_view text);

}  // namespace headroom::oom::detail
