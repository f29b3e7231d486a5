#include "headroom/oom/detail/statement.h"

#include <algorithm>
#include <array>

#include "headroom/oom/detail/amount.h"

namespace headroom::oom::detail {
namespace {

// From the last full stop before `at`.
std::string_view sentence_before(std::string_view text, std::size_t at) {
  const std::string_view before = text.substr(0, at);
  const std::size_t stop = before.rfind(". ");
  return stop == std::string_view::npos ? before : before.substr(stop + 2);
}

// "If you encounter CUDA out of memory, try ...": advice, whatever happened.
bool is_advice(std::string_view before) {
  constexpr std::array<std::string_view, 29> kAdvice{"if you",
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
                                                     "will be killed if"};
  return matches_any(kAdvice, before);
}

// "you may not have enough memory": nobody knows.
bool is_hedged(std::string_view before) {
  constexpr std::array<std::string_view, 24> kHedges{
      "may be",   "may have",        "may not",   "may run",     "may cause",  "may lead",
      "maybe",    "might",           "could be",  "could cause", "could lead", "could result",
      "possibly", "possible cause*", "probably",  "perhaps",     "likely",     "can cause",
      "can lead", "can result",      "would run", "would lead",  "potential*", "risk of"};
  return matches_any(kHedges, before);
}

std::string_view last_word(std::string_view& text) {
  while (text.ends_with(' ')) text.remove_suffix(1);
  const std::size_t blank = text.rfind(' ');
  const std::string_view word = blank == std::string_view::npos ? text : text.substr(blank + 1);
  text.remove_suffix(word.size());
  return word;
}

template <std::size_t n>
bool is_one_of(std::string_view word, const std::array<std::string_view, n>& words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// Words that may stand between another word and the want that it speaks of.
constexpr std::array<std::string_view, 15> kBetween{"a",    "an",  "any",    "the", "run",
                                                    "ran",  "go",  "single", "hit", "running",
                                                    "cuda", "gpu", "host",   "see", "more"};

template <std::size_t n>
std::string_view last_word_but(std::string_view text,
                               const std::array<std::string_view, n>& skipped) {
  std::string_view word = last_word(text);
  for (int i = 0; i < 3 && is_one_of(word, skipped); ++i) word = last_word(text);
  return word;
}

// "no CUDA out of memory", "did not run out of memory": the word of denial stands close before it.
bool is_denied(std::string_view before) {
  constexpr std::array<std::string_view, 9> kDenials{
      "no", "not", "never", "without", "didn't", "don't", "isn't", "wasn't", "neither"};
  return is_one_of(last_word_but(before, kBetween), kDenials);
}

// "0 out-of-memory errors".
bool is_counted_none(std::string_view before, std::string_view after) {
  const std::string_view number = last_word(before);
  if (number != "0" && number != "zero") return false;
  return after.starts_with("s") || after.starts_with(" error") || after.starts_with(" event") ||
         after.starts_with(" kill") || after.starts_with(" exception");
}

// "the last run ended with CUDA out of memory": of another program, or of an earlier time.
bool is_of_another_time(std::string_view before) {
  constexpr std::array<std::string_view, 14> kTimes{
      "previously", "previous run", "previous attempt", "previous job", "last run",
      "last time",  "last attempt", "last job",         "last:",        "earlier",
      "simulat*",   "pretend*",     "inject*",          "expecting"};
  return matches_any(kTimes, before);
}

// "fix CUDA out of memory in evaluate()", "will catch std::bad_alloc": what was or will be done
// about it.
bool is_dealt_with(std::string_view before) {
  constexpr std::array<std::string_view, 16> kDeeds{
      "fix",     "fix:",  "fixes",   "fixed",   "fixing",   "avoid",   "avoids", "handle",
      "handles", "catch", "catches", "survive", "survives", "recover", "detect", "detects"};
  return is_one_of(last_word_but(before, kBetween), kDeeds);
}

bool is_of_token(char c) {
  return is_word_character(c) || c == '-' || c == '.' || c == '/' || c == '\\';
}

// "https://.../cuda-out-of-memory", "logs/oom_kill.txt": all of it stands in a path.
bool is_in_path(std::string_view text, Span said) {
  for (const std::string_view ending : {".txt", ".log", ".md", ".html", ".json"})
    if (text.substr(said.end).starts_with(ending)) return true;
  if (text.substr(said.begin, said.end - said.begin).find(' ') != std::string_view::npos)
    return false;
  std::size_t begin = said.begin, end = said.end;
  while (begin > 0 && (is_of_token(text[begin - 1]) || text[begin - 1] == ':')) --begin;
  while (end < text.size() && is_of_token(text[end])) ++end;
  const std::string_view around = text.substr(begin, end - begin);
  constexpr std::array<std::string_view, 7> kFiles{"*.log",  "*.txt", "*.html", "*.md",
                                                   "*.json", "*.py",  "*.hprof"};
  return text.substr(begin, said.begin - begin).find('/') != std::string_view::npos ||
         around.find("://") != std::string_view::npos || matches_any(kFiles, around);
}

struct Quote {
  std::size_t open = 0, close = 0;
};

// The quotes around a place: the nearest before it, if another one of its kind closes it behind.
bool find_quote(std::string_view text, Span said, Quote& quote) {
  quote.open = text.substr(0, said.begin).find_last_of("\"'`");
  if (quote.open == std::string_view::npos) return false;
  // The end of a quote or an apostrophe ("didn't", "... 'x' out of memory") opens nothing.
  const bool opens = quote.open == 0 || !is_word_character(text[quote.open - 1]);
  if (!opens || text[quote.open + 1] == ' ') return false;
  quote.close = text.find(text[quote.open], said.end);
  return quote.close != std::string_view::npos;
}

// Whether the brackets that are open at a place are those of a call: "apierror(2, 'call ...')".
bool is_in_call(std::string_view text, std::size_t at) {
  int closed = 0;
  while (at > 0) {
    const char c = text[--at];
    if (c == ')' || c == ']' || c == '}') ++closed;
    if (c != '(' && c != '[' && c != '{') continue;
    if (closed-- == 0) return c == '(' && at > 0 && is_word_character(text[at - 1]);
  }
  return false;
}

// ["CUDA out of memory", "CUBLAS_STATUS_ALLOC_FAILED"]: one of several, in quotes.
bool is_in_list(std::string_view text, Quote quote) {
  if (is_in_call(text, quote.open)) return false;
  const std::size_t before = text.substr(0, quote.open).find_last_not_of(' ');
  const std::size_t after = text.find_first_not_of(' ', quote.close + 1);
  const auto is_between = [&](std::size_t at) {
    return at < text.size() && (text[at] == ',' || text[at] == '|');
  };
  if (is_between(before)) return true;
  if (before >= text.size() || !is_between(after)) return false;
  const bool opens = std::string_view("[{(").find(text[before]) != std::string_view::npos;
  const std::size_t next = text.find_first_not_of(' ', after + 1);
  return opens && next < text.size() && (text[next] == '"' || text[next] == '\'');
}

std::size_t words_in(std::string_view text) {
  std::size_t words = 0;
  bool inside = false;
  for (const char c : text) {
    words += c != ' ' && !inside ? 1 : 0;
    inside = c != ' ';
  }
  return words;
}

// completed, out_of_memory, timeout: one of several words between commas.
bool is_in_enumeration(std::string_view text, Span said) {
  std::size_t begin = text.substr(0, said.end - 1).find_last_of(",([{:");
  begin = begin == std::string_view::npos ? 0 : begin;
  const std::size_t end = std::min(text.find_first_of(",)]}", said.end), text.size());
  if (words_in(text.substr(begin + 1, end - begin - 1)) > 4) return false;
  std::size_t neighbours = 0;
  if (begin > 0 && text[begin] == ',') {
    const std::size_t other = text.substr(0, begin).find_last_of(",([{:");
    const std::size_t from = other == std::string_view::npos ? 0 : other + 1;
    neighbours += words_in(text.substr(from, begin - from)) <= 2 ? 1 : 0;
    if (other != std::string_view::npos && text[other] == ',') ++neighbours;
  }
  if (end < text.size() && text[end] == ',') {
    const std::size_t other = std::min(text.find_first_of(",)]}:", end + 1), text.size());
    neighbours += words_in(text.substr(end + 1, other - end - 1)) <= 2 ? 1 : 0;
  }
  return neighbours >= 2;
}

// job 88123 "CUDA out of memory", input should be 'out of memory' or 'never': quoted behind a word
// that tells of no failure, or as what a sentence is about.
bool is_citation(std::string_view text, Quote quote) {
  for (const std::string_view goes_on :
       {" is not", " not in", " not found", " in ", " or ", " and "})
    if (text.substr(quote.close + 1).starts_with(goes_on)) return true;
  std::size_t before = quote.open;
  while (before > 0 && text[before - 1] == ' ') --before;
  if (before == 0 || before == quote.open || !is_word_character(text[before - 1])) return false;
  constexpr std::array<std::string_view, 19> kFailing{
      "*error",  "failed", "failure", "exception", "fatal", "description", "with",
      "to",      "reason", "message", "panic*",    "at",    "what",        "of",
      "because", "says:",  "code",    "#",         "main"};
  std::size_t word = before;
  while (word > 0 && is_word_character(text[word - 1])) --word;
  return !matches_any(kFailing, text.substr(word, before - word));
}

struct Name {
  std::size_t end = 0;   // behind it and its closing quote
  bool of_flag = false;  // "oom_kill", "oomkilled", "ooms", "out of memory events"
};

// The name in which the place ends: `oomkilled": ` or `out of memory errors: `.
Name name_at(std::string_view text, Span said) {
  std::size_t begin = said.end, end = said.end;
  while (begin > 0 && (is_word_character(text[begin - 1]) || text[begin - 1] == '-')) --begin;
  while (end < text.size() && is_word_character(text[end])) ++end;
  const std::string_view word = text.substr(begin, end - begin);
  Name name{.end = end,
            .of_flag = word.find_first_of("_-") != std::string_view::npos ||
                       word.find("oom") != std::string_view::npos || word == "outofmemory"};
  for (const std::string_view counted : {" errors", " events", " kills", " count"})
    if (text.substr(end).starts_with(counted)) name = {end + counted.size(), true};
  name.end = std::min(text.find_first_not_of("\"'}", name.end), text.size());
  return name;
}

// CUDA_ERROR_OUT_OF_MEMORY = 2: an enumeration gives a name its number.
bool names_constant(std::string_view text, const Name& name, std::size_t value) {
  const bool equals = text.substr(name.end, value - name.end).find('=') != std::string_view::npos;
  return equals && name.end >= 9 && text.substr(0, name.end).ends_with("of_memory");
}

// "oomkilled": false, oom_kill 0, out_of_memory=no: the flag says that it did not happen.
bool is_switched_off(std::string_view text, Span said) {
  const Name name = name_at(text, said);
  const std::size_t at = text.find_first_not_of(" :=", name.end);
  if (at == name.end || at == std::string_view::npos) return false;
  const bool assigned =
      text.substr(name.end, at - name.end).find_first_of(":=") != std::string_view::npos;
  if (assigned && text.substr(at).starts_with("false")) return true;
  if (!name.of_flag) return false;
  if (const auto amount = amount_at(text, at))
    return !amount->has_unit && (amount->bytes.count == 0 || names_constant(text, name, at));
  const std::size_t end = std::min(text.find_first_of(" ,;|}])", at), text.size());
  constexpr std::array<std::string_view, 8> kOff{"false", "no",  "null", "none",
                                                 "nil",   "off", "n/a",  "<nil>"};
  return is_one_of(text.substr(at, end - at), kOff);
}

// The name before a colon or an equals sign that ends `before`, but for opening brackets.
std::string_view key_of(std::string_view before) {
  const std::size_t colon = before.find_last_not_of(" \"'[({");
  if (colon == std::string_view::npos || (before[colon] != ':' && before[colon] != '=')) return {};
  const std::size_t last = before.substr(0, colon).find_last_not_of(" \"'");
  if (last == std::string_view::npos) return {};
  std::size_t begin = last + 1;
  while (begin > 0 && (is_word_character(before[begin - 1]) || before[begin - 1] == '-')) --begin;
  return before.substr(begin, last + 1 - begin);
}

// on_oom: "CUDA out of memory ...", retry_on=..., ignore: ...: the key is a setting for that case.
bool is_value_of_setting(std::string_view before) {
  constexpr std::array<std::string_view, 10> kSettings{"on_*",      "*_on",   "*oom*",   "*regex*",
                                                       "*pattern*", "retry*", "*policy", "ignore*",
                                                       "filter*",   "*match*"};
  const std::string_view key = key_of(before);
  return !key.empty() && matches_any(kSettings, key);
}

// "prompt: why is CUDA out of memory", "label: out of memory": what a program shows of its data.
bool is_of_data(std::string_view text) {
  constexpr std::array<std::string_view, 20> kData{
      "prompt",    "label",    "sample", "input",   "question",    "title",  "user",
      "assistant", "answer",   "q",      "a",       "target",      "pred",   "prediction",
      "reference", "sentence", "query",  "caption", "instruction", "example"};
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos || colon > 24) return false;
  std::string_view key = text.substr(0, colon);
  while (key.starts_with('"') || key.starts_with('\'') || key.starts_with('{'))
    key.remove_prefix(1);
  while (key.ends_with('"') || key.ends_with('\'') || key.ends_with('s')) key.remove_suffix(1);
  return is_one_of(last_word(key), kData);
}

// "are you out of memory?"; but "memory exhausted (limit reached?)".
bool is_question(std::string_view text, Span said) {
  const std::size_t end = text.find_first_of(".?!(", said.end);
  return end != std::string_view::npos && text[end] == '?' && end < said.end + 120;
}

}  // namespace

Statement statement_at(std::string_view text, Span said) {
  const std::string_view before = sentence_before(text, said.begin);
  Quote quote;
  const bool quoted = find_quote(text, said, quote);
  if (quoted && (is_in_list(text, quote) || is_citation(text, quote))) return Statement::mention;
  if (!quoted && is_in_enumeration(text, said)) return Statement::mention;
  const std::string_view outside = text.substr(0, quoted ? quote.open : said.begin);
  if (is_switched_off(text, said) || is_value_of_setting(outside) || is_of_data(text))
    return Statement::mention;
  if (is_in_path(text, said)) return Statement::mention;
  if (is_counted_none(before, text.substr(said.end)) || is_denied(before))
    return Statement::mention;
  if (is_advice(before) || is_of_another_time(before) || is_dealt_with(before))
    return Statement::mention;
  if (is_hedged(before) || is_question(text, said)) return Statement::guess;
  return Statement::event;
}

}  // namespace headroom::oom::detail
