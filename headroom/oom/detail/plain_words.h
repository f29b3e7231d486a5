// Words for a want of memory that anybody understands, for programs that nobody listed.
#pragma once

#include <optional>
#include <string_view>

#include "headroom/oom/detail/pattern.h"

namespace headroom::oom::detail {

// "out of memory", "could not allocate 3 GB", "buffer allocation failed" at or behind `from`, if it
// begins before `first_line`. An allocation of anything else (nodes, ports, licenses) is none.
[[nodiscard]] std::optional<Span> want_of_memory(std::string_view text, std::size_t first_line,
                                                 std::size_t from = 0);

// Words that say on which side the memory is.
[[nodiscard]] bool speaks_of_device(std::string_view text);
[[nodiscard]] bool speaks_of_host(std::string_view text);

// ENOMEM, which the system also gives for limits that are no memory.
[[nodiscard]] bool is_error_12(std::string_view text);

}  // namespace headroom::oom::detail
