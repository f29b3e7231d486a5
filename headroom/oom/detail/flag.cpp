#include "headroom/oom/detail/flag.h"

#include <algorithm>
#include <array>

#include "headroom/oom/detail/amount_in_log.h"
#include "headroom/oom/detail/words.h"

namespace headroom::oom::detail {
namespace {

struct Name {
  std::size_t end = 0;   // after it and its closing quote
  bool of_flag = false;  // "oom_kill", "oomkilled", "ooms", "out of memory events"
};

// The name that the place ends in: `oomkilled": ` or `out of memory errors: `.
Name name_at(std::string_view text, Span said) {
  std::size_t begin = said.end, end = said.end;
  while (begin > 0 && (is_word_character(text[begin - 1]) || text[begin - 1] == '-')) --begin;
  while (end < text.size() && is_word_character(text[end])) ++end;
  const std::string_view word = text.substr(begin, end - begin);
  Name name{.end = end,
            .of_flag = word.find_first_of("_-") != kNowhere || word.find("oom") != kNowhere ||
                       word == "outofmemory"};
  for (const std::string_view counted : {" errors", " events", " kills", " count"})
    if (text.substr(end).starts_with(counted)) name = {end + counted.size(), true};
  name.end = std::min(text.find_first_not_of("\"'}", name.end), text.size());
  return name;
}

bool is_off(std::string_view word) {
  constexpr auto kOff = std::to_array<std::string_view>(
      {"false", "no", "null", "none", "nil", "off", "n/a", "<nil>"});
  return is_one_of(word, kOff);
}

}  // namespace

bool is_switched_off(std::string_view text, Span said) {
  const Name name = name_at(text, said);
  const std::size_t at = text.find_first_not_of(" :=", name.end);
  if (at == name.end || at == kNowhere) return false;
  const std::string_view between = text.substr(name.end, at - name.end);
  if (between.find_first_of(":=") != kNowhere && text.substr(at).starts_with("false")) return true;
  if (!name.of_flag) return false;
  if (const auto amount = amount_at(text, at)) {
    const bool constant =
        between.find('=') != kNowhere && text.substr(0, name.end).ends_with("out_of_memory");
    return !amount->has_unit && (amount->bytes.count == 0 || constant);
  }
  return is_off(text.substr(at, std::min(text.find_first_of(" ,;|}])", at), text.size()) - at));
}

std::string_view key_of(std::string_view before) {
  const std::size_t colon = before.find_last_not_of(" \"'[({");
  if (colon == kNowhere || (before[colon] != ':' && before[colon] != '=')) return {};
  const std::size_t last = before.substr(0, colon).find_last_not_of(" \"'");
  if (last == kNowhere) return {};
  std::size_t begin = last + 1;
  while (begin > 0 && (is_word_character(before[begin - 1]) || before[begin - 1] == '-')) --begin;
  return before.substr(begin, last + 1 - begin);
}

bool is_value_of_setting(std::string_view before) {
  constexpr auto kSettings = std::to_array<std::string_view>(
      {"on_*", "*_on", "*oom*", "*regex*", "*pattern*", "retry*", "*policy", "ignore*", "filter*",
       "*match*", "content", "prompt", "question", "answer", "title", "subject", "instruction",
       "completion", "caption"});
  const std::string_view key = key_of(before);
  return !key.empty() && matches_any(kSettings, key);
}

bool is_of_data(std::string_view text, Span said) {
  constexpr auto kTalk = std::to_array<std::string_view>(
      {"prompt", "question", "user", "assistant", "answer", "q", "a", "title", "instruction"});
  constexpr auto kData =
      std::to_array<std::string_view>({"label", "sample", "input", "target", "pred", "prediction",
                                       "reference", "sentence", "query", "example"});
  const std::size_t colon = text.find(':');
  if (colon == kNowhere || colon > 24 || colon >= said.begin) return false;
  std::string_view key = text.substr(0, colon);
  key.remove_prefix(std::min(key.find_first_not_of("\"'{"), key.size()));
  while (key.ends_with('"') || key.ends_with('\'') || key.ends_with('s')) key.remove_suffix(1);
  const std::string_view word = take_last_word(key);
  if (is_one_of(word, kTalk)) return true;
  const std::size_t value = std::min(text.find_first_not_of(' ', colon + 1), said.begin);
  const bool quoted = text[value] == '"' || text[value] == '\'';
  const bool direct = text.substr(value, said.begin - value).find(':') == kNowhere;
  return (quoted || direct) && is_one_of(word, kData);
}

}  // namespace headroom::oom::detail
