// The exceptions that a line raises, and what their types mean.
//
// The name of a type says something only where it is raised: "torch.OutOfMemoryError: ..." at the
// beginning of a message, alone, or as it is logged ("OutOfMemoryError('...')"). In "module
// 'torch.cuda' has no attribute 'OutOfMemoryError'" it is a word.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "headroom/oom/detail/pattern.h"
#include "headroom/oom/detail/rules.h"

namespace headroom::oom::detail {

struct Raised {
  std::string_view name;   // in full: "torch.cuda.outofmemoryerror"
  Span span;               // where it stands
  bool is_logged = false;  // "name('...')": a value that was printed, not what ends a program
};

// In the order of the line, which is of lower case.
[[nodiscard]] std::vector<Raised> raised_in(std::string_view text);

// Whether the message begins with an exception that it raises.
[[nodiscard]] bool begins_with_raised(std::string_view text);

// Of a mistake in a program: such a failure is never one of memory, whatever it quotes.
[[nodiscard]] bool is_of_a_bug(std::string_view name);

struct TypeMeaning {
  Meaning meaning = Meaning::possible;
  std::string_view kind;
  double confidence = 0;
};

// What the type alone says of memory, in lower case, in full: of Python, Java, .NET, Ruby and C++.
[[nodiscard]] std::optional<TypeMeaning> meaning_of_type(std::string_view name);

}  // namespace headroom::oom::detail
