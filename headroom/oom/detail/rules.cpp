#include "headroom/oom/detail/rules.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "headroom/base/error.h"
#include "headroom/base/json.h"
#include "headroom/oom/detail/embedded.h"

namespace headroom::oom::detail {
namespace {

Meaning meaning_named(std::string_view name) {
  constexpr std::string_view kNames[] = {"harmless", "survived", "gpu",
                                         "host",     "other",    "possible"};
  const auto found = std::find(std::begin(kNames), std::end(kNames), name);
  if (found == std::end(kNames))
    throw InternalError("oom", "rules.json: no such meaning: " + std::string(name));
  return static_cast<Meaning>(found - std::begin(kNames));
}

Groups groups_from(const Json& json) {
  Groups groups;
  for (const Json& group : json) {
    Group& rules = groups.emplace_back();
    for (const Json& rule : group.at("rules"))
      rules.push_back({.meaning = meaning_named(rule.at(0).get_ref<const std::string&>()),
                       .kind = rule.at(1).get_ref<const std::string&>(),
                       .confidence = rule.at(2),
                       .pattern = rule.at(3).get_ref<const std::string&>()});
  }
  return groups;
}

Words words_from(const Json& json) {
  Words words;
  for (const Json& word : json) words.emplace_back(word.get_ref<const std::string&>());
  return words;
}

// The text that each rule needs at least: the longest part of its pattern without placeholders.
// Indexed by its first letters.
class LongestParts {
 public:
  explicit LongestParts(const Rules& rules) {
    for (const Groups* groups : {&rules.harmless, &rules.named_reasons, &rules.gpu, &rules.host,
                                 &rules.possible, &rules.other})
      for (const Group& group : *groups)
        for (const Rule& rule : group) add(rule.pattern);
  }

  [[nodiscard]] bool any_in(std::string_view text) const {
    for (std::size_t at = 0; at + kFirst <= text.size(); ++at) {
      const auto found = by_first_.find(text.substr(at, kFirst));
      if (found == by_first_.end()) continue;
      for (const std::string_view part : found->second)
        if (text.substr(at).starts_with(part)) return true;
    }
    return false;
  }

 private:
  static constexpr std::size_t kFirst = 3;

  void add(std::string_view pattern) {
    std::string_view longest;
    for (std::size_t begin = 0; begin < pattern.size();) {
      const std::size_t end = std::min(pattern.find_first_of("*#~", begin), pattern.size());
      if (end - begin > longest.size()) longest = pattern.substr(begin, end - begin);
      begin = end + 1;
    }
    if (longest.size() < kFirst)
      throw InternalError("oom", "rules.json: too few letters together: " + std::string(pattern));
    by_first_[longest.substr(0, kFirst)].push_back(longest);
  }

  std::unordered_map<std::string_view, std::vector<std::string_view>> by_first_;
};

}  // namespace

const Rules& rules() {
  static const Json& json = *new Json(parse_json(embedded::rules_json(), "rules.json"));
  const auto plain = [&](const char* name) { return words_from(json.at("plain").at(name)); };
  const auto figures = [&](const char* name) { return words_from(json.at("figures").at(name)); };
  static const Rules all{.harmless = groups_from(json.at("harmless")),
                         .named_reasons = groups_from(json.at("named_reasons")),
                         .gpu = groups_from(json.at("gpu")),
                         .host = groups_from(json.at("host")),
                         .possible = groups_from(json.at("possible")),
                         .other = groups_from(json.at("other")),
                         .types = groups_from(json.at("types")),
                         .bugs = words_from(json.at("bugs")),
                         .plain = {.wants = plain("wants"),
                                   .refusals = plain("refusals"),
                                   .refused = plain("refused"),
                                   .memory = plain("memory"),
                                   .other_things = plain("other_things")},
                         .figures = {.asked = figures("asked"),
                                     .total = figures("total"),
                                     .free = figures("free"),
                                     .cached = figures("cached"),
                                     .device = figures("device")}};
  return all;
}

const Rule* first_rule(std::span<const Group> groups, std::string_view text,
                       std::size_t begins_before) {
  for (const Group& group : groups)
    for (const Rule& rule : group)
      if (find(rule.pattern, text, begins_before)) return &rule;
  return nullptr;
}

bool may_match_a_rule(std::string_view text) {
  static const LongestParts parts(rules());
  return parts.any_in(text);
}

}  // namespace headroom::oom::detail
