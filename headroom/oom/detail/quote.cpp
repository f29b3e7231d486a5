#include "headroom/oom/detail/quote.h"

#include <algorithm>
#include <array>

#include "headroom/oom/detail/flag.h"
#include "headroom/oom/detail/words.h"

namespace headroom::oom::detail {
namespace {

// The position of the innermost open bracket around `at`.
std::size_t open_bracket(std::string_view text, std::size_t at) {
  int closed = 0;
  while (at > 0) {
    const char c = text[--at];
    if (c == ')' || c == ']' || c == '}') ++closed;
    if ((c == '(' || c == '[' || c == '{') && closed-- == 0) return at;
  }
  return kNowhere;
}

// "apierror(2, 'call to ...')": the printed value is the exception itself.
bool is_in_call(std::string_view text, std::size_t at) {
  const std::size_t open = open_bracket(text, at);
  return open != kNowhere && text[open] == '(' && open > 0 && is_word_character(text[open - 1]);
}

// "memoryerror: ('error allocating ...', 'you might ...')": the arguments of the raised exception.
bool is_raised_with(std::string_view text, std::size_t at) {
  const std::size_t open = open_bracket(text, at);
  if (open == kNowhere || text[open] != '(') return false;
  const std::string_view key = key_of(text.substr(0, open));
  return key.ends_with("error") || key.ends_with("exception");
}

// errors: ["..."] reports failures, retry_on: ["..."] does not.
bool names_failures(std::string_view key) {
  constexpr auto kFailures = std::to_array<std::string_view>(
      {"*err*", "*exception*", "*fail*", "*detail", "msg", "message"});
  return !key.empty() && matches_any(kFailures, key);
}

// The word before a place, if only blanks stand between them.
std::string_view word_before(std::string_view text, std::size_t at) {
  const std::size_t last = text.substr(0, at).find_last_not_of(' ');
  if (last == kNowhere || last + 1 == at || !is_word_character(text[last])) return {};
  std::size_t begin = last;
  while (begin > 0 && is_word_character(text[begin - 1])) --begin;
  return text.substr(begin, last + 1 - begin);
}

bool is_outcome(std::string_view element) {
  constexpr auto kOutcomes = std::to_array<std::string_view>(
      {"ok",      "error",     "abort*",     "retry",    "skip*",   "complet*",
       "fail*",   "time*out",  "cancel*",    "killed",   "*oom*",   "terminat*",
       "success", "succeeded", "node*fail*", "preempt*", "running", "pending",
       "never",   "crash*",    "halve",      "unknown"});
  return matches_any(kOutcomes, element);
}

}  // namespace

std::optional<Quote> quote_around(std::string_view text, Span said) {
  Quote quote;
  quote.open = text.substr(0, said.begin).find_last_of("\"'`");
  if (quote.open == kNowhere || text[quote.open + 1] == ' ') return {};
  // The end of a quote or an apostrophe ("didn't", "... 'x' out of memory") opens nothing.
  if (quote.open > 0 && is_word_character(text[quote.open - 1])) return {};
  quote.close = text.find(text[quote.open], said.end);
  if (quote.close == kNowhere) return {};
  return quote;
}

bool is_in_list(std::string_view text, Quote quote) {
  if (is_in_call(text, quote.open) || is_raised_with(text, quote.open)) return false;
  const std::size_t before = text.substr(0, quote.open).find_last_not_of(' ');
  const std::size_t after = text.find_first_not_of(' ', quote.close + 1);
  const auto is_between = [&](std::size_t at) {
    return at < text.size() && (text[at] == ',' || text[at] == '|');
  };
  if (is_between(before)) return true;
  if (before >= text.size() || after >= text.size()) return false;
  const bool opens = std::string_view("[{(").find(text[before]) != kNowhere;
  if (text[before] == '[' && text[after] == ']')
    return !names_failures(key_of(text.substr(0, before)));
  const std::size_t next = text.find_first_not_of(' ', after + 1);
  return opens && is_between(after) && next < text.size() &&
         (text[next] == '"' || text[next] == '\'');
}

bool is_citation(std::string_view text, Quote quote) {
  constexpr auto kFailing = std::to_array<std::string_view>(
      {"*error", "fail*",   "failure", "exception", "fatal", "description", "with",    "to",
       "reason", "message", "panic*",  "at",        "what",  "of",          "because", "code",
       "got",    "return*", "status",  "result*",   "state", "raised",      "threw",   "thrown",
       "throws", "caught",  "due",     "by",        "from",  "cause",       "event",   "err",
       "output", "stderr",  "stdout",  "main"});
  std::string_view word = word_before(text, quote.open);
  if (!word.empty() && word.find_first_not_of("0123456789") == kNowhere)  // error 2 "out of memory"
    word = word_before(text, static_cast<std::size_t>(word.data() - text.data()));
  if (!word.empty()) return !matches_any(kFailing, word);
  constexpr auto kGoesOn =
      std::to_array<std::string_view>({" is not", " not in", " not found", " or "});
  const std::string_view behind = text.substr(quote.close + 1);
  return std::any_of(kGoesOn.begin(), kGoesOn.end(),
                     [&](std::string_view words) { return behind.starts_with(words); });
}

bool is_in_enumeration(std::string_view text, Span said) {
  constexpr std::string_view kEdges = ",([{:|]})";
  std::size_t neighbours = 0;
  std::size_t begin = text.substr(0, said.end - 1).find_last_of(kEdges);
  for (int i = 0; i < 2 && begin != kNowhere && text[begin] == ',' && begin > 0; ++i) {
    const std::size_t other = text.substr(0, begin).find_last_of(kEdges);
    const std::size_t from = other == kNowhere ? 0 : other + 1;
    neighbours += is_outcome(text.substr(from, begin - from)) ? 1 : 0;
    begin = other;
  }
  std::size_t end = text.find_first_of(kEdges, said.end);
  for (int i = 0; i < 2 && end != kNowhere && text[end] == ','; ++i) {
    const std::size_t other = std::min(text.find_first_of(kEdges, end + 1), text.size());
    neighbours += is_outcome(text.substr(end + 1, other - end - 1)) ? 1 : 0;
    end = other < text.size() ? other : kNowhere;
  }
  return neighbours >= 2;
}

}  // namespace headroom::oom::detail
