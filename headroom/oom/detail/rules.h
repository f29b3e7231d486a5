// The rules of the detector, which are data (data/rules.json): small groups, one a source of
// messages. pattern.h explains how a rule is written.
//
// Within one line the groups are asked in the order of the members below; the first that knows the
// line decides.
#pragma once

#include <string_view>
#include <vector>

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
using Group = std::vector<Rule>;
using Groups = std::vector<Group>;

struct Rules {
  Groups harmless;
  Groups named_reasons;  // of failures that are not of memory
  Groups gpu;
  Groups host;  // the first group: what ends processes for want of memory; the second: languages
  Groups possible;
  Groups other;  // what is left of other failures
};
[[nodiscard]] const Rules& rules();

// False for most texts, and only for those that no rule matches: a rule's longest words are in none
// of them.
[[nodiscard]] bool may_match_a_rule(std::string_view text);

}  // namespace headroom::oom::detail
