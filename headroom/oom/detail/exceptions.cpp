#include "headroom/oom/detail/exceptions.h"

#include <algorithm>
#include <array>

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

struct Known {
  std::string_view pattern;
  TypeMeaning meaning;
};

// The first pattern that matches the name counts.
constexpr auto kTypes = std::to_array<Known>({
    {"c10::outofmemoryerror", {Meaning::gpu, "cuda_caching_allocator", 0.9}},
    {"torch.*outofmemoryerror", {Meaning::gpu, "cuda_caching_allocator", 0.9}},
    {"cupy*outofmemoryerror", {Meaning::gpu, "cupy", 0.95}},
    {"rmm::out_of_memory", {Meaning::gpu, "rmm", 0.9}},
    {"cuda::*memory*", {Meaning::gpu, "cuda_runtime", 0.9}},
    {"pycuda*memoryerror", {Meaning::gpu, "cuda_driver", 0.9}},
    {"pyopencl*memoryerror", {Meaning::gpu, "opencl", 0.8}},
    {"ncudalib*outofmemoryerror", {Meaning::gpu, "catboost", 0.9}},
    {"ray*outofmemoryerror", {Meaning::host, "ray", 0.9}},
    {"java.lang.outofmemoryerror", {Meaning::host, "java", 0.85}},
    {"system.outofmemoryexception", {Meaning::host, "dotnet", 0.9}},
    {"system.insufficientmemoryexception", {Meaning::host, "dotnet", 0.9}},
    {"nomemoryerror", {Meaning::host, "ruby", 0.85}},
    {"*arrowmemoryerror", {Meaning::host, "arrow", 0.9}},
    {"*bad_alloc", {Meaning::host, "bad_alloc", 0.9}},
    {"*bad_array_new_length", {Meaning::host, "bad_alloc", 0.85}},
    {"memoryerror", {Meaning::host, "python_memoryerror", 0.9}},
    {"_arraymemoryerror", {Meaning::host, "python_memoryerror", 0.9}},
    {"*resourceexhaustederror", {Meaning::possible, "tensorflow", 0.6}},  // also for a quota
    {"*resourceexhausted", {Meaning::possible, "grpc", 0.6}},
    {"psycopg*outofmemory", {Meaning::host, "postgres", 0.75}},
    {"outofmemoryerror", {Meaning::gpu, "cuda_caching_allocator", 0.75}},  // mostly PyTorch's
});

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
  constexpr auto kBugs = std::to_array<std::string_view>({"attributeerror",
                                                          "importerror",
                                                          "modulenotfounderror",
                                                          "nameerror",
                                                          "unboundlocalerror",
                                                          "keyerror",
                                                          "indexerror",
                                                          "lookuperror",
                                                          "typeerror",
                                                          "syntaxerror",
                                                          "indentationerror",
                                                          "assertionerror",
                                                          "notimplementederror",
                                                          "zerodivisionerror",
                                                          "floatingpointerror",
                                                          "unicodedecodeerror",
                                                          "unicodeencodeerror",
                                                          "filenotfounderror",
                                                          "fileexistserror",
                                                          "permissionerror",
                                                          "isadirectoryerror",
                                                          "notadirectoryerror",
                                                          "jsondecodeerror",
                                                          "connectionerror",
                                                          "connectionrefusederror",
                                                          "timeouterror",
                                                          "recursionerror",
                                                          "eoferror",
                                                          "stopiteration",
                                                          "keyboardinterrupt",
                                                          "urlerror",
                                                          "httperror",
                                                          "ratelimiterror",
                                                          "badzipfile",
                                                          "classnotfoundexception",
                                                          "nullpointerexception",
                                                          "illegalargumentexception"});
  return std::find(kBugs.begin(), kBugs.end(), last_part(name)) != kBugs.end();
}

std::optional<TypeMeaning> meaning_of_type(std::string_view name) {
  for (const Known& known : kTypes)
    if (matches(known.pattern, name)) return known.meaning;
  return {};
}

}  // namespace headroom::oom::detail
