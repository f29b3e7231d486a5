#include "headroom/oom/detail/exceptions.h"

#include <algorithm>
#include <array>

#include "headroom/oom/detail/rules.h"

namespace headroom::oom::detail {
namespace {

bool is_of_name(char c) {
  return is_word_character(c) || c == '.' || c == '$';
}

// "torch.cuda.outofmemoryerror" -> "outofmemoryerror".
std::string_view last_part(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  return dot == std::string_view::npos ? name : name.substr(dot + 1);
}

// "error:" and "exception:" alone are ordinary words.
bool is_type_name(std::string_view name) {
  constexpr auto kEndings = std::to_array<std::string_view>(
      {"error", "exception", "interrupt", "exit", "iteration", "outofmemory", "exhausted"});
  const std::string_view last = last_part(name);
  return std::any_of(kEndings.begin(), kEndings.end(), [&](std::string_view ending) {
    return last.ends_with(ending) && last != ending;
  });
}

// True at the beginning of a text, or after what logs put before a message: "...] x", "error: x",
// "thread "main" x", "| x".
bool may_begin_message(std::string_view text, std::size_t at) {
  if (at == 0) return true;
  std::size_t before = at;
  while (before > 0 && text[before - 1] == ' ') --before;
  if (before == 0) return true;
  constexpr std::string_view kBefore = ":])|>\"-;}";
  const bool apart = before < at;
  const char last = text[before - 1];
  if (last == '(') return text.substr(0, before - 1).ends_with("error");  // "raytaskerror(x)"
  if (last == ':' && !apart) {
    const std::string_view word = text.substr(0, before - 1);
    return word.ends_with("error") || word.ends_with("exception");  // "error:x"
  }
  return apart && kBefore.find(last) != std::string_view::npos;
}

// "x: ...", "x" at the end, "x (see above): ...".
bool may_end_name(std::string_view text, std::size_t at) {
  if (at >= text.size()) return true;
  if (text[at] == ':') return !text.substr(at).starts_with("::");
  if (text[at] == ')') return at + 1 == text.size() || text[at + 1] == ':';
  return text.substr(at).starts_with(" (see above");
}

// "x('...", "x()", "x(\"...": as Python and Julia print the exception itself.
bool is_printed_value(std::string_view text, std::size_t at) {
  const std::string_view rest = text.substr(at);
  return rest.starts_with("('") || rest.starts_with("(\"") || rest.starts_with("()") ||
         rest.starts_with("((");
}

bool stands_behind_raise(std::string_view text, std::size_t at) {
  const std::string_view before = text.substr(0, at);
  return before.ends_with("raise ") || before.ends_with("throw ") || before.ends_with("new ") ||
         before.ends_with("except ");
}

}  // namespace

std::vector<Raised> raised_in(std::string_view text) {
  std::vector<Raised> raised;
  for (std::size_t at = 0; at < text.size();) {
    if (!is_of_name(text[at])) {
      ++at;
      continue;
    }
    std::size_t end = at;
    while (end < text.size() && is_of_name(text[end])) ++end;
    std::size_t name_end = end;
    while (name_end > at && text[name_end - 1] == '.') --name_end;  // the end of a sentence
    const std::string_view name = text.substr(at, name_end - at);
    if (is_type_name(name)) {
      const bool logged = is_printed_value(text, end) && !stands_behind_raise(text, at);
      if (logged || (may_begin_message(text, at) && may_end_name(text, end)))
        raised.push_back({name, {at, name_end}, logged});
    }
    at = end;
  }
  return raised;
}

bool begins_with_raised(std::string_view text) {
  const auto raised = raised_in(text.substr(0, 200));
  return !raised.empty() && raised.front().span.begin == 0 && !raised.front().is_logged;
}

bool is_of_a_bug(std::string_view name) {
  const Words& bugs = rules().bugs;
  return std::find(bugs.begin(), bugs.end(), last_part(name)) != bugs.end();
}

}  // namespace headroom::oom::detail
