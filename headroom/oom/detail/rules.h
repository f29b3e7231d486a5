// The rules of the detector, which are data (data/rules.json): small groups, one per source of
// messages. pattern.h explains their language.
//
// For each line the groups are tried in the order of the members below; the first match decides.
#pragma once

#include <string_view>
#include <vector>

namespace headroom::oom::detail {

enum class Meaning {
  harmless,  // a help text, a hint, a statistic: the line reports no failure
  survived,  // the program says that it went on after an earlier failure
  gpu,
  host,
  other,     // a failure that does not come from memory
  possible,  // a failure that may or may not come from memory
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
  Groups named_reasons;  // for failures that do not come from memory
  Groups gpu;
  Groups host;  // first group: programs that kill for lack of memory; second: languages
  Groups possible;
  Groups other;  // the remaining failures
};
[[nodiscard]] const Rules& rules();

// A fast filter: false for most texts, and only for texts that no rule matches, because they
// contain no rule's longest literal part.
[[nodiscard]] bool may_match_a_rule(std::string_view text);

}  // namespace headroom::oom::detail
