// Finds one number in a YAML or JSON text, so that only its digits are replaced. Comments, order,
// quotes and line ends stay as they are.
//
// Tries each change and reads the text again: a change of anything else is refused. Also refused
// are values that other places refer to (anchors), several documents, and duplicate keys.
//
//   Slot slot = find_slot(text, "config.yaml", "training.batch_size");
//   text.replace(slot.at, slot.length, slot.with(32));
#pragma once

#include <optional>
#include <string>

namespace headroom::edit::detail {

struct Slot {
  std::size_t at = 0, length = 0;  // of the digits; length 0: the key is missing
  std::string before, after;       // text around an inserted number
  std::optional<long long> value;  // the present value
  [[nodiscard]] std::string with(long long number) const {
    return before + std::to_string(number) + after;
  }
};

// `keys` are joined by dots; a number is an index into a list, from 0. With `may_be_missing` a
// missing last key gives the place to insert it, beside its siblings. Throws InputError for a text
// that cannot be parsed (a `.json` file as JSON, all else as YAML), and UsageError for a key that
// is missing or cannot be changed safely; both name `source`.
[[nodiscard]] Slot find_slot(const std::string& text, const std::string& source,
                             const std::string& keys, bool may_be_missing = false);

}  // namespace headroom::edit::detail
