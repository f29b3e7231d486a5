// Events as the columns of a part: numbers of one kind side by side, which compresses well.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "headroom/trace/event.h"

namespace headroom::trace::detail {

// A number that tables may be made of; kAllStreams is none, and only for completions.
[[nodiscard]] bool has_a_stream(const Event& event);

// Appends the columns; one in which all is 0 is left out.
void append_columns(std::string& to, std::span<const Event> events);

// Fills `events`, whose size is that of the part; what the columns leave out stays as it is. "" or
// what was expected: the bytes hold something else. Names are numbers below `names`.
[[nodiscard]] std::string read_columns(std::string_view bytes, std::span<Event> events,
                                       std::size_t names);

}  // namespace headroom::trace::detail
