// Where a command holds a mapped value, or could hold it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "headroom/edit/detail/mapping.h"

namespace headroom::edit::detail {

// Letters of one text that are replaced; `argument` says which text.
struct Edit {
  std::size_t argument = 0, at = 0, length = 0;
  std::string before = {}, after = {};      // around the value that is put in
  std::vector<std::string> arguments = {};  // whole arguments in front of `argument` instead
  // The same with its value: everything in `before`, or in the last of `arguments`.
  [[nodiscard]] Edit put(const std::string& value) const;
};

// All of them at once: places are those of the texts as they are now.
void apply(std::vector<Edit> edits, std::vector<std::string>& texts);

struct CommandValue {
  std::string text;  // as it stands there, without quotes
  Edit edit;
  std::size_t clause = 0;  // of which program
  int times = 1;           // that the same program is given it; this is the last
};

// One for each program (each clause) that is given it.
[[nodiscard]] std::vector<CommandValue> values_in(const std::vector<std::string>& command,
                                                  const Mapping& mapping);

// The place for a flag or key that no program is given: behind `beside` where the command has that,
// in the same form, else at the end. Throws UsageError where it is not clear whose end.
[[nodiscard]] Edit room_for(const std::vector<std::string>& command, const Mapping& mapping,
                            const Mapping* beside);

// The same command with more arguments for the program that is given `beside`, or for the only one
// there is; behind all others where a shell's text passes its own arguments on ("$@"). Throws
// UsageError where it is not clear which one that is.
[[nodiscard]] std::vector<std::string> with_arguments(const std::vector<std::string>& command,
                                                      const std::vector<std::string>& arguments,
                                                      const Mapping* beside);

// What of the command looks most like it.
[[nodiscard]] std::optional<std::string> nearest_name(const std::vector<std::string>& command,
                                                      const Mapping& mapping);

}  // namespace headroom::edit::detail
