// A YAML or JSON text as a flat list of events with positions. Aliases are not expanded, so a text
// cannot grow.
//
//   std::vector<Event> events = read_events(text, "config.yaml");
#pragma once

#include <string>
#include <vector>

namespace headroom::edit::detail {

struct Event {
  enum Kind { scalar, null, alias, map, map_end, list, list_end } kind = scalar;
  std::size_t at = 0;      // position in the text; unused for an end
  std::string text = {};   // a scalar's, without quotes and escapes
  std::string tag = {};    // "?" plain, "!" quoted
  std::size_t anchor = 0;  // its own, or the target of an alias; 0: none
  bool flow = false;       // [..] and {..}
  // Compares the content, not the position.
  bool operator==(const Event& other) const {
    return kind == other.kind && text == other.text && tag == other.tag && anchor == other.anchor &&
           flow == other.flow;
  }
};

// Throws InputError; UsageError for several documents.
[[nodiscard]] std::vector<Event> read_events(const std::string& text, const std::string& source);

}  // namespace headroom::edit::detail
