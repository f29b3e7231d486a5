// A YAML or JSON text as a flat list of what comes one after the other, with places. Aliases stay
// aliases: nothing is expanded, so a text cannot grow.
//
//   std::vector<Event> events = read_events(text, "config.yaml");
#pragma once

#include <string>
#include <vector>

namespace headroom::edit::detail {

struct Event {
  enum Kind { scalar, null, alias, map, map_end, list, list_end } kind = scalar;
  std::size_t at = 0;      // in the text; of an end: nothing
  std::string text = {};   // of a scalar, without quotes and escapes
  std::string tag = {};    // "?" plain, "!" quoted
  std::size_t anchor = 0;  // of its own, or that an alias means; 0: none
  bool flow = false;       // [..] and {..}
  // The same content; the place may differ.
  bool operator==(const Event& other) const {
    return kind == other.kind && text == other.text && tag == other.tag && anchor == other.anchor &&
           flow == other.flow;
  }
};

// Throws InputError; UsageError for several documents.
[[nodiscard]] std::vector<Event> read_events(const std::string& text, const std::string& source);

}  // namespace headroom::edit::detail
