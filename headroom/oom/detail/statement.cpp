#include "headroom/oom/detail/statement.h"

#include <algorithm>
#include <array>
#include <span>

#include "headroom/base/text.h"
#include "headroom/oom/detail/flag.h"
#include "headroom/oom/detail/quote.h"
#include "headroom/oom/detail/words.h"

namespace headroom::oom::detail {
namespace {

// The text before `at`, from the last full stop on.
std::string_view sentence_before(std::string_view text, std::size_t at) {
  const std::string_view before = text.substr(0, at);
  const std::size_t stop = before.rfind(". ");
  return stop == std::string_view::npos ? before : before.substr(stop + 2);
}

// "If you encounter CUDA out of memory, try ...": advice, not a report.
bool is_advice(std::string_view before) {
  constexpr auto kAdvice = std::to_array<std::string_view>({"if you",
                                                            "if the",
                                                            "if there",
                                                            "if this",
                                                            "if cuda",
                                                            "if gpu",
                                                            "if it",
                                                            "if your",
                                                            "if an",
                                                            "if memory",
                                                            "if we",
                                                            "if training",
                                                            "if any",
                                                            "if out",
                                                            "in case",
                                                            "to avoid",
                                                            "avoid*",
                                                            "prevent*",
                                                            "when you",
                                                            "whenever",
                                                            "help with",
                                                            "how to",
                                                            "ensure*",
                                                            "otherwise",
                                                            "tip:",
                                                            "unless",
                                                            "in the event of",
                                                            "guard against",
                                                            "will be killed if"});
  return matches_any(kAdvice, before);
}

// "you may not have enough memory": a guess.
bool is_hedged(std::string_view before) {
  constexpr auto kHedges = std::to_array<std::string_view>(
      {"may be",    "may have", "may not",    "may run",     "may cause",       "may lead",
       "maybe",     "might",    "could be",   "could cause", "could lead",      "could result",
       "possibly",  "probably", "perhaps",    "likely",      "possible cause*", "possible reason*",
       "can cause", "can lead", "can result", "would run",   "would lead",      "potential*",
       "risk of"});
  return matches_any(kHedges, before);
}

// Words that may stand between a qualifying word and the out-of-memory.
constexpr auto kBetween =
    std::to_array<std::string_view>({"a", "an", "any", "the", "run", "ran", "go", "single", "hit",
                                     "running", "cuda", "gpu", "host", "see", "more"});

// Takes the last word, skipping up to three of `those`; `text` keeps the part before it.
std::string_view take_last_word_but(std::string_view& text,
                                    std::span<const std::string_view> those) {
  std::string_view word = take_last_word(text);
  for (int i = 0; i < 3 && is_one_of(word, those); ++i) word = take_last_word(text);
  return word;
}

// "no CUDA out of memory", "did not run out of memory": a denial stands close before it.
// "could not fork" reports a failure.
bool is_denied(std::string_view before) {
  constexpr auto kDenials = std::to_array<std::string_view>(
      {"no", "not", "never", "without", "didn't", "don't", "isn't", "wasn't", "neither"});
  const std::string_view word = take_last_word_but(before, kBetween);
  return is_one_of(word, kDenials) && !before.ends_with("could ") && !before.ends_with("can ");
}

// "If CUDA out of memory, you can lower ...", "Note: when out of memory, ...": a condition.
bool is_condition(std::string_view before) {
  const std::string_view word = take_last_word_but(before, kBetween);
  if (word == "if" || word == "unless") return true;
  const std::string_view start = trim(before);
  return (word == "when" || word == "once") && (start.empty() || start.ends_with(':'));
}

// "0 out-of-memory errors".
bool is_counted_none(std::string_view before, std::string_view after) {
  const std::string_view number = take_last_word(before);
  if (number != "0" && number != "zero") return false;
  return after.starts_with("s") || after.starts_with(" error") || after.starts_with(" event") ||
         after.starts_with(" kill") || after.starts_with(" exception");
}

// "the last run ended with CUDA out of memory", "should report an out of memory": another program,
// an earlier time, or the expectation of a test.
bool is_of_another_time(std::string_view before) {
  constexpr auto kTimes = std::to_array<std::string_view>(
      {"previously", "previous run", "previous attempt", "previous job", "last run", "last time",
       "last attempt", "last job", "last:", "earlier", "simulated", "pretend*", "injecting",
       "injected", "expecting", "expected to", "should"});
  return matches_any(kTimes, before);
}

// "fix CUDA out of memory in evaluate()", "will catch std::bad_alloc": its past or future handling.
bool is_dealt_with(std::string_view before) {
  constexpr auto kDeeds = std::to_array<std::string_view>(
      {"fix", "fix:", "fixes", "fixed", "fixing", "avoid", "avoids", "handle", "handles", "catch",
       "catches", "survive", "survives", "recover", "detect", "detects"});
  return is_one_of(take_last_word_but(before, kBetween), kDeeds);
}

bool is_of_token(char c) {
  return is_word_character(c) || c == '-' || c == '.' || c == '/' || c == '\\';
}

// "https://.../cuda-out-of-memory", "logs/oom_kill.txt": the place is part of a path.
bool is_in_path(std::string_view text, Span said) {
  for (const std::string_view ending : {".txt", ".log", ".md", ".html", ".json"})
    if (text.substr(said.end).starts_with(ending)) return true;
  if (text.substr(said.begin, said.end - said.begin).find(' ') != std::string_view::npos)
    return false;
  std::size_t begin = said.begin, end = said.end;
  while (begin > 0 && is_of_token(text[begin - 1])) --begin;
  while (end < text.size() && is_of_token(text[end])) ++end;
  const std::string_view around = text.substr(begin, end - begin);
  constexpr auto kFiles = std::to_array<std::string_view>(
      {"*.log", "*.txt", "*.html", "*.md", "*.json", "*.py", "*.hprof"});
  return text.substr(begin, said.begin - begin).find('/') != std::string_view::npos ||
         matches_any(kFiles, around);
}

// "are you out of memory?", but not "memory exhausted (limit reached?)".
bool is_question(std::string_view text, Span said) {
  const std::size_t end = text.find_first_of(".?!(", said.end);
  return end != std::string_view::npos && text[end] == '?' && end < said.end + 120;
}

}  // namespace

Statement statement_at(std::string_view whole, Span found) {
  if (is_of_data(whole, found)) return Statement::mention;
  // Text farther away does not qualify the place, and lines may be long.
  constexpr std::size_t kNear = 400;
  const std::size_t from = found.begin > kNear ? found.begin - kNear : 0;
  const std::string_view text = whole.substr(from, found.end - from + kNear);
  const Span said{found.begin - from, found.end - from};

  const std::string_view before = sentence_before(text, said.begin);
  const auto quote = quote_around(text, said);
  const std::string_view outside = text.substr(0, quote ? quote->open : said.begin);
  if (quote ? is_in_list(text, *quote) || is_citation(text, *quote) : is_in_enumeration(text, said))
    return Statement::mention;
  if (is_switched_off(text, said) || is_value_of_setting(outside) || is_in_path(text, said))
    return Statement::mention;
  if (is_counted_none(before, text.substr(said.end)) || is_denied(before))
    return Statement::mention;
  if (is_advice(before) || is_condition(before) || is_of_another_time(before) ||
      is_dealt_with(before))
    return Statement::mention;
  if (is_hedged(before) || is_question(text, said)) return Statement::guess;
  return Statement::event;
}

}  // namespace headroom::oom::detail
