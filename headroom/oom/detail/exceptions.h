// The exceptions that a line raises.
//
// The name of a type counts only where it is raised: "torch.OutOfMemoryError: ..." at the beginning
// of a message, alone, or as it is logged ("OutOfMemoryError('...')"). In "module 'torch.cuda' has
// no attribute 'OutOfMemoryError'" it is only a word.
#pragma once

#include <string_view>
#include <vector>

#include "headroom/oom/detail/pattern.h"

namespace headroom::oom::detail {

struct Raised {
  std::string_view name;   // the full name: "torch.cuda.outofmemoryerror"
  Span span;               // its place in the line
  bool is_logged = false;  // "name('...')": a printed value, which does not end a program
};

// In the order of the line; `text` is in lower case.
[[nodiscard]] std::vector<Raised> raised_in(std::string_view text);

// True if the message begins with an exception that it raises.
[[nodiscard]] bool begins_with_raised(std::string_view text);

// True for types of other failures (bugs, files, connections): never of memory.
[[nodiscard]] bool is_of_a_bug(std::string_view name);

}  // namespace headroom::oom::detail
