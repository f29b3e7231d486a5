// The rules of the detector: small groups, one a source of messages. Read classify.h's promise
// first, then rules_gpu.cpp; pattern.h explains how a rule is written.
//
// Within one line the groups are asked in this order, the first that knows the line decides:
// what is no failure at all, a named reason that is no memory, device memory, host memory, what may
// be memory or not, and last what is left of other failures.
#pragma once

#include <span>
#include <string_view>

namespace headroom::oom::detail {

enum class Meaning {
  harmless,  // a help text, a hint, a statistic: the line tells of no failure
  survived,  // the program says that it went on after what it told of before
  gpu,
  host,
  other,     // a failure, and not of memory
  possible,  // a failure that may come from memory or not: cannot be told
};

struct Rule {
  Meaning meaning;
  std::string_view kind;
  double confidence;
  std::string_view pattern;
};

constexpr Rule gpu(std::string_view kind, double confidence, std::string_view pattern) {
  return {Meaning::gpu, kind, confidence, pattern};
}
constexpr Rule host(std::string_view kind, double confidence, std::string_view pattern) {
  return {Meaning::host, kind, confidence, pattern};
}
constexpr Rule other(std::string_view kind, std::string_view pattern) {
  return {Meaning::other, kind, 0.9, pattern};
}
constexpr Rule possible(std::string_view kind, std::string_view pattern) {
  return {Meaning::possible, kind, 0.5, pattern};
}
constexpr Rule harmless(std::string_view pattern) {
  return {Meaning::harmless, "", 0, pattern};
}
constexpr Rule survived(std::string_view pattern) {
  return {Meaning::survived, "", 0, pattern};
}

struct Group {
  std::string_view source;
  std::span<const Rule> rules;
};

// What each message means, by who writes it.
[[nodiscard]] std::span<const Group> harmless_rules();
[[nodiscard]] std::span<const Group> named_reasons();
[[nodiscard]] std::span<const Group> gpu_rules();
[[nodiscard]] std::span<const Group> host_rules();
[[nodiscard]] std::span<const Group> possible_rules();
[[nodiscard]] std::span<const Group> other_failures();

}  // namespace headroom::oom::detail
