#include "headroom/oom/detail/findings.h"

#include <algorithm>
#include <array>
#include <optional>

#include "headroom/base/text.h"
#include "headroom/oom/detail/exceptions.h"
#include "headroom/oom/detail/pattern.h"
#include "headroom/oom/detail/plain_words.h"
#include "headroom/oom/detail/statement.h"

namespace headroom::oom::detail {
namespace {

// A line with its wrapped continuation, and its surroundings.
struct Place {
  const std::vector<Line>& lines;
  std::size_t at = 0;
  std::string text;  // joined; a match must begin in the line itself
  bool log_speaks_of_device = false;
  std::vector<Span> mentions = {};  // places that report nothing
  [[nodiscard]] const Line& line() const { return lines[at]; }
  [[nodiscard]] std::size_t first_line() const { return line().text.size(); }
};

Finding from(const Rule& rule) {
  return {.meaning = rule.meaning, .kind = std::string(rule.kind), .confidence = rule.confidence};
}

// Weighs a match by the statement at its place: an event, a guess, or a mention. A mention covers
// all words inside it.
std::optional<Finding> weighed(Finding finding, Place& place, Span said) {
  for (const Span& mention : place.mentions)
    if (said.begin < mention.end && mention.begin < said.end) return {};
  switch (statement_at(place.text, said)) {
    case Statement::event:
      return finding;
    case Statement::guess:
      finding.meaning = Meaning::possible;
      finding.confidence = 0.5;
      return finding;
    case Statement::mention:
      break;
  }
  place.mentions.push_back(said);
  return {};
}

// Keeps the first event; without an event, the first guess.
void take_better(std::optional<Finding>& best, std::optional<Finding> finding) {
  if (!finding) return;
  if (!best || (!is_memory(*best) && is_memory(*finding))) best = std::move(finding);
}

// A line with more places than this is not a message.
constexpr int kMostPlaces = 16;

std::optional<Finding> by_rule(const Rule& rule, Place& place) {
  std::optional<Finding> best;
  auto said = find(rule.pattern, place.text, place.first_line());
  for (int i = 0; said && i < kMostPlaces; ++i) {
    take_better(best, weighed(from(rule), place, *said));
    if (best && (is_memory(*best) || rule.meaning == Meaning::possible)) return best;
    said = find(rule.pattern, place.text, place.first_line(), said->begin + 1);
  }
  return best;
}

std::optional<Finding> by_rules(std::span<const Group> groups, Place& place) {
  std::optional<Finding> best;
  for (const Group& group : groups)
    for (const Rule& rule : group) {
      take_better(best, by_rule(rule, place));
      if (best && (is_memory(*best) || rule.meaning == Meaning::possible)) return best;
    }
  return best;
}

std::optional<Finding> by_types(Place& place) {
  std::optional<Finding> best;
  for (const Raised& raised : raised_in(place.line().text)) {
    const Rule* rule = first_rule(rules().types, raised.name);
    if (rule == nullptr || rule->meaning == Meaning::possible) continue;
    take_better(best, weighed(from(*rule), place, raised.span));
  }
  return best;
}

bool says_that_it_failed(const Line& line) {
  constexpr auto kWords =
      std::to_array<std::string_view>({"*error*", "fatal*", "fail*", "abort*", "exception*",
                                       "panic*", "terminat*", "killed", "out of memory*~"});
  constexpr std::size_t kShort = 60;  // little more than the words themselves
  return line.level == Level::error || line.text.size() <= kShort || matches_any(kWords, line.text);
}

// For a program without rules: device or host, by the words of the line and of the whole log.
Finding by_side(const Place& place, Span said) {
  const std::string_view near = std::string_view(place.text).substr(0, said.begin + 300);
  // "(GPU 3) out of memory": the prefix counts, too.
  const bool device =
      speaks_of_device(near) || speaks_of_device(lower(place.line().printed.substr(0, 80)));
  const bool host = speaks_of_host(near);
  if (device && !host) return {.meaning = Meaning::gpu, .kind = "device_memory", .confidence = 0.8};
  if (host && !device) return {.meaning = Meaning::host, .kind = "host_memory", .confidence = 0.75};
  if (place.log_speaks_of_device && matches("out of memory", near))
    return {.meaning = Meaning::gpu, .kind = "device_memory", .confidence = 0.6};
  // No device word in the whole log: most programs use only host memory.
  if (!place.log_speaks_of_device && says_that_it_failed(place.line()))
    return {.meaning = Meaning::host, .kind = "out_of_memory", .confidence = 0.75, .is_weak = true};
  return {.meaning = Meaning::possible, .kind = "out_of_memory", .confidence = 0.5};
}

std::optional<Finding> by_plain_words(Place& place) {
  std::optional<Finding> best;
  auto said = memory_shortage(place.text, place.first_line());
  for (int i = 0; said && i < kMostPlaces && !(best && is_memory(*best)); ++i) {
    take_better(best, weighed(by_side(place, *said), place, *said));
    said = memory_shortage(place.text, place.first_line(), said->begin + 1);
  }
  return best;
}

// The lines of the traceback that ends here, and the lines right after it.
std::string surroundings(const Place& place) {
  constexpr std::size_t kAround = 3, kMost = 40;
  std::size_t first = place.at > kAround ? place.at - kAround : 0;
  while (first > 0 && place.at - first < kMost && place.lines[first - 1].is_quoted) --first;
  const std::size_t last = std::min(place.at + kAround, place.lines.size() - 1);
  std::string text;
  for (std::size_t i = first; i <= last; ++i) text += place.lines[i].text + "\n";
  return text;
}

// ENOMEM of an io_uring, of locked memory or of huge pages: a limit, not a lack of memory.
bool is_of_a_limit(const Place& place) {
  constexpr auto kWords = std::to_array<std::string_view>(
      {"*hugepage*", "huge page*", "eal:", "vfio*", "*uring*", "mlock*", "ulimit -l", "*memlock*",
       "ibv_*", "locked memory"});
  return is_error_12(place.text) && matches_any(kWords, surroundings(place));
}

// The first line of the innermost frame of the traceback above; without one, some lines up.
std::size_t innermost_frame(const Place& place) {
  constexpr std::size_t kNoFrame = 4;
  for (std::size_t i = place.at; i > 0 && place.lines[i - 1].is_quoted; --i)
    if (matches("file \"*line #", place.lines[i - 1].text)) return i - 1;
  return place.at > kNoFrame ? place.at - kNoFrame : 0;
}

// CUDA reports a failure to pin host memory in the card's words; the innermost call reveals it.
bool is_of_pinned_memory(const Finding& finding, const Place& place) {
  constexpr auto kCalls = std::to_array<std::string_view>(
      {"*.pin_memory(*", "*pin_memory=true", "*hostalloc*", "*mallochost*", "in pin_memory",
       "*pin_memory.py", "pin memory thread"});
  const bool of_runtime = finding.kind == "cuda_runtime" || finding.kind == "cuda_driver" ||
                          finding.kind == "other_vendor";
  if (finding.meaning != Meaning::gpu || !of_runtime) return false;
  for (std::size_t i = innermost_frame(place); i < place.at; ++i)
    if (matches_any(kCalls, place.lines[i].text)) return true;
  return false;
}

constexpr auto kStates = std::to_array<std::string_view>(
    {"running", "completed", "error", "pending", "failed", "timeout", "cancelled"});

// In a list of pods the killed one may be any of them.
bool is_one_of_many_pods(const Place& place) {
  if (!matches("#/# oomkilled", place.line().text)) return false;
  return std::any_of(place.lines.begin(), place.lines.end(), [](const Line& line) {
    return matches("#/# *", line.text) && matches_any(kStates, line.text);
  });
}

// "882" of "882.batch" and "882|OUT_OF_MEMORY".
std::string_view number_of_job(std::string_view text) {
  return text.substr(0, std::min(text.find_first_not_of("0123456789"), text.size()));
}

// The same for a list of jobs.
bool is_one_of_many_jobs(const Place& place) {
  const std::string_view job = number_of_job(place.line().text);
  if (job.empty()) return false;
  return std::any_of(place.lines.begin(), place.lines.end(), [&](const Line& line) {
    const std::string_view other = number_of_job(line.text);
    return !other.empty() && other != job && matches_any(kStates, line.text);
  });
}

std::optional<Finding> memory_finding(Place& place) {
  const std::span killers = std::span(rules().host).first(1);
  auto finding = by_rules(rules().gpu, place);
  if (!finding) {
    finding = by_rules(killers, place);
    if (finding) finding->of_killer = true;
  }
  if (!finding) finding = by_rules(std::span(rules().host).subspan(1), place);
  if (!finding) finding = by_types(place);
  if (!finding) finding = by_plain_words(place);
  if (!finding) return {};
  // TensorFlow retries with smaller requests and goes on with the memory that it gets.
  if (finding->kind == "tensorflow" && finding->confidence <= 0.7) finding->is_weak = true;
  if (is_of_a_limit(place))
    return Finding{.meaning = Meaning::other, .kind = "memlock", .confidence = 0.9};
  if (is_of_pinned_memory(*finding, place))
    return Finding{.meaning = Meaning::host, .kind = "pinned_memory", .confidence = 0.75};
  if (is_one_of_many_pods(place)) finding->meaning = Meaning::possible;
  if (matches("out_of_me*", place.text) && is_one_of_many_jobs(place))
    finding->meaning = Meaning::possible;
  return finding;
}

// "KeyError: ...": a mistake in a program, whatever it quotes. But a library that fails to load may
// have lacked memory.
std::optional<Finding> bug_in(const Line& line) {
  const auto raised = raised_in(line.text);
  const auto first =
      std::find_if(raised.begin(), raised.end(), [](const Raised& one) { return !one.is_logged; });
  if (first == raised.end() || !is_of_a_bug(first->name)) return {};
  if (is_error_12(line.text) || matches("paging file", line.text)) return {};
  // A lost connection may mean that another process was killed.
  constexpr auto kLost = std::to_array<std::string_view>(
      {"*connection*", "*timeouterror", "*eoferror", "*keyboardinterrupt"});
  return Finding{.meaning = Meaning::other,
                 .kind = "python_error",
                 .confidence = 0.9,
                 .is_named = !matches_any(kLost, first->name)};
}

// "Killed" alone, or as a shell reports a job: "line 28:  8156 Killed    python3 main.py".
bool is_bare_kill(std::string_view text) {
  constexpr auto kJobs = std::to_array<std::string_view>(
      {"line #: # killed", "] # killed", "] killed", "zsh: killed"});
  return text == "killed" || text == "killed: 9" || text.starts_with("killed (core") ||
         text.ends_with(" killed") || matches_any(kJobs, text);
}

// True for an exception that is logged as information or printed as a warning ("trial 8 failed
// because of X('...')"), and for a supervisor's field "error": these are failures at any level.
bool is_failure_at_any_level(const Place& place) {
  const Line& line = place.line();
  const auto raised = raised_in(line.text);
  const bool ends_traceback =
      place.at > 0 && place.lines[place.at - 1].is_quoted && !raised.empty();
  const bool logged =
      std::any_of(raised.begin(), raised.end(), [](const Raised& one) { return one.is_logged; });
  if (line.level == Level::warning) return ends_traceback || logged;
  constexpr auto kErrors = std::to_array<std::string_view>(
      {"*error: ", "*exception: ", "error=*", "err=*", "ggml_*failed*"});
  return ends_traceback || logged || matches_any(kErrors, line.text) ||
         line.text.ends_with("error");
}

// A warning ends no program, but schedulers and Spark report their kills as warnings.
std::optional<Finding> warned_kill(Place& place) {
  const std::span<const Group> all = rules().host;
  auto finding = by_rules(all.first(1), place);
  if (!finding) finding = by_rules(all.subspan(1, 1), place);
  if (!finding || !is_memory(*finding)) return {};
  const bool killer = by_rules(all.first(1), place).has_value();
  if (!killer && finding->kind != "java") return {};
  finding->confidence = std::min(finding->confidence, 0.75);
  return finding;
}

// "Try reducing batch size": advice, not a report.
bool is_recommended(const Rule& rule, const Place& place) {
  if (rule.meaning != Meaning::survived) return false;
  const auto found = find(rule.pattern, place.text, place.first_line());
  constexpr auto kCounsel =
      std::to_array<std::string_view>({"try", "consider*", "recommend*", "suggest*", "please",
                                       "by reducing", "by decreasing", "by skipping"});
  constexpr std::size_t kNear = 60;
  const std::size_t from = found->end > kNear ? found->end - kNear : 0;
  return matches_any(kCounsel, place.text.substr(from, found->end - from));
}

std::optional<Finding> finding_in(Place place) {
  const Line& line = place.line();
  const bool quiet = line.level == Level::debug || line.level == Level::warning;
  if (const Rule* rule = first_rule(rules().harmless, place.text, place.first_line());
      rule != nullptr && !is_recommended(*rule, place))
    return from(*rule);
  if (line.level == Level::warning && !is_failure_at_any_level(place)) return warned_kill(place);
  if (const Rule* rule = first_rule(rules().named_reasons, line.text, place.first_line())) {
    Finding finding = from(*rule);
    finding.is_named = true;
    return finding;
  }
  if (auto bug = bug_in(line); bug && line.level != Level::debug) return bug;
  auto finding = memory_finding(place);
  if (finding && quiet && is_memory(*finding)) {
    if (!is_failure_at_any_level(place)) return {};
    finding->confidence = std::min(finding->confidence, 0.7);
  }
  if (finding) return finding;
  if (const Rule* rule = first_rule(rules().possible, place.text, place.first_line()))
    return from(*rule);
  if (is_bare_kill(line.text))
    return Finding{.meaning = Meaning::possible, .kind = "sigkill", .confidence = 0.5};
  if (line.level == Level::debug) return {};
  if (const Rule* rule = first_rule(rules().other, line.text, place.first_line()))
    return from(*rule);
  return {};
}

// A fast filter: most lines contain nothing that a rule, an exception or a plain phrase matches.
bool is_worth_a_look(std::string_view text) {
  // Parts of exceptions and of plain phrases (exceptions.cpp, plain_words.cpp).
  constexpr auto kWords =
      std::to_array<std::string_view>({"memor", "alloc", "error", "exception", "exhaust",
                                       "interrupt", "exit", "iteration", "kill", "reserve", "oom"});
  const auto is_in = [&](std::string_view word) {
    return text.find(word) != std::string_view::npos;
  };
  const bool foreign = std::any_of(text.begin(), text.end(),
                                   [](char c) { return static_cast<unsigned char>(c) >= 0x80; });
  return foreign || std::any_of(kWords.begin(), kWords.end(), is_in) || may_match_a_rule(text);
}

bool mentions_device_anywhere(const std::vector<Line>& lines) {
  return std::any_of(lines.begin(), lines.end(),
                     [](const Line& line) { return speaks_of_device(lower(line.printed)); });
}

}  // namespace

bool is_memory(const Finding& finding) {
  return finding.meaning == Meaning::gpu || finding.meaning == Meaning::host;
}

std::vector<Finding> findings_in(const std::vector<Line>& lines) {
  std::vector<Finding> findings;
  const bool device = mentions_device_anywhere(lines);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].is_quoted) continue;
    std::string text = joined(lines, i);
    if (!is_worth_a_look(text)) continue;
    auto finding = finding_in({lines, i, std::move(text), device});
    if (!finding || finding->meaning == Meaning::harmless) continue;
    finding->line = i;
    finding->raised = begins_with_raised(lines[i].text);
    findings.push_back(std::move(*finding));
  }
  return findings;
}

}  // namespace headroom::oom::detail
