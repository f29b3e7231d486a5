// One number in a YAML or JSON text: where its digits stand, so that they alone can be replaced.
// Comments, order, quotes and line ends stay as they are.
//
// Every change is tried and read again: if anything but that number differs, it is refused. So are
// values that others refer to (anchors), several documents, and keys that stand twice.
//
//   Slot slot = find_slot(text, "config.yaml", "training.batch_size");
//   text.replace(slot.at, slot.length, slot.with(32));
#pragma once

#include <optional>
#include <string>

namespace headroom::edit::detail {

struct Slot {
  std::size_t at = 0, length = 0;  // of the digits; a length of 0: it is not there yet
  std::string before, after;       // what surrounds a number that is put in
  std::optional<long long> value;  // as it stands there
  [[nodiscard]] std::string with(long long number) const {
    return before + std::to_string(number) + after;
  }
};

// `keys` are joined by dots; a number is a place in a list, from 0. `may_be_missing`: a last key
// that is not there gives the place where it can be put in, beside those that are.
// Throws InputError for a text that cannot be read (a `.json` file is JSON, all else YAML), and
// UsageError for a key that is not there or cannot be changed safely; both name `source`.
[[nodiscard]] Slot find_slot(const std::string& text, const std::string& source,
                             const std::string& keys, bool may_be_missing = false);

}  // namespace headroom::edit::detail
