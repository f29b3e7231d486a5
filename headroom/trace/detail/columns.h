// Stores the events of a part as columns: numbers of one kind side by side, which compress well.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "headroom/trace/event.h"

namespace headroom::trace::detail {

// True if the stream may index a table; also for kAllStreams in a complete_events event.
[[nodiscard]] bool has_a_stream(const Event& event);

// Appends the columns; leaves out a column of zeros.
void append_columns(std::string& to, std::span<const Event> events);

// Fills `events`, which has the size of the part; fields without a column keep their values.
// Returns "", or the expectation that malformed bytes do not meet. All names must be below `names`.
[[nodiscard]] std::string read_columns(std::string_view bytes, std::span<Event> events,
                                       std::size_t names);

}  // namespace headroom::trace::detail
