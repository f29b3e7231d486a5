// The rules and the words of the detector, which are data (data/rules.json). Rules form small
// groups, one per source of messages. pattern.h explains their language.
//
// For each line the groups are tried in the order of the members below; the first match decides.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "headroom/oom/detail/pattern.h"

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
using Words = std::vector<std::string_view>;

struct Rules {
  Groups harmless;
  Groups named_reasons;  // for failures that do not come from memory
  Groups gpu;
  Groups host;  // first group: programs that kill for lack of memory; second: languages
  Groups possible;
  Groups other;  // the remaining failures
  Groups types;  // of exceptions, by their full names in lower case
  Words bugs;    // types of other failures (bugs, files, connections): never of memory
  struct {
    Words wants;                 // phrases that are enough by themselves
    Words refusals, refused;     // refused allocations, with the verb first or the noun first
    Words memory, other_things;  // nouns of what was refused
  } plain;
  // Phrases in front of an amount ("tried to allocate ~") or behind it ("~ free"). One that ends in
  // # needs no unit: the program prints plain bytes. The most exact phrase comes first.
  struct {
    Words asked, total, free, cached, device;
  } figures;
};
[[nodiscard]] const Rules& rules();

// The first rule that matches before `begins_before`, or null.
[[nodiscard]] const Rule* first_rule(std::span<const Group> groups, std::string_view text,
                                     std::size_t begins_before = kAnywhere);

// A fast filter: false for most texts, and only for texts that no rule matches, because they
// contain no rule's longest literal part.
[[nodiscard]] bool may_match_a_rule(std::string_view text);

}  // namespace headroom::oom::detail
