// Finds the places of a mapped value in a command, or a place to add it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "headroom/edit/detail/mapping.h"

namespace headroom::edit::detail {

// A replacement of characters in the text with number `argument`.
struct Edit {
  std::size_t argument = 0, at = 0, length = 0;
  std::string before = {}, after = {};      // text around the inserted value
  std::vector<std::string> arguments = {};  // or whole arguments to insert before `argument`
  // The same edit with a value: all in `before`, or in the last of `arguments`.
  [[nodiscard]] Edit put(const std::string& value) const;
};

// Applies all edits at once; positions are those of the texts before.
void apply(std::vector<Edit> edits, std::vector<std::string>& texts);

struct CommandValue {
  std::string text;  // without quotes
  Edit edit;
  std::size_t clause = 0;  // of the program that gets it
  int times = 1;           // the program gets it this often; this is the last
};

// One for each program (clause) that gets the value.
[[nodiscard]] std::vector<CommandValue> values_in(const std::vector<std::string>& command,
                                                  const Mapping& mapping);

// The place for a flag or key that no program gets: after `beside` if the command has it in the
// same form, else at the end. Throws UsageError if it is not clear which program's end that is.
[[nodiscard]] Edit room_for(const std::vector<std::string>& command, const Mapping& mapping,
                            const Mapping* beside);

// The command with more arguments for the program that gets `beside`, or for the only program;
// after all other arguments if a shell's text passes its arguments on ("$@"). Throws UsageError if
// the program is not clear.
[[nodiscard]] std::vector<std::string> with_arguments(const std::vector<std::string>& command,
                                                      const std::vector<std::string>& arguments,
                                                      const Mapping* beside);

// The argument name in the command that is most similar.
[[nodiscard]] std::optional<std::string> nearest_name(const std::vector<std::string>& command,
                                                      const Mapping& mapping);

}  // namespace headroom::edit::detail
