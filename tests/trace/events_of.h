// A whole trace in memory, as tests compare it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/base/error.h"
#include "headroom/trace/reader.h"

namespace headroom::trace::testing {

inline std::vector<Event> all_events(Reader& reader) {
  std::vector<Event> events;
  for (Event event; reader.next(event);) events.push_back(event);
  return events;
}

inline std::unique_ptr<Reader> open_bytes(std::string_view bytes) {
  return open_trace(Input::memory("a.trace", bytes));
}

inline std::vector<Event> events_of(std::string_view bytes) {
  return all_events(*open_bytes(bytes));
}

// The text of the InputError that reading ends with; "" if it does not.
inline std::string input_error_of(std::string_view bytes) {
  try {
    events_of(bytes);
  } catch (const InputError& error) {
    return error.what();
  }
  return {};
}

}  // namespace headroom::trace::testing
