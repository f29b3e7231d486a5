#include "headroom/oom/detail/findings.h"

#include <algorithm>
#include <array>
#include <optional>

#include "headroom/oom/detail/pattern.h"

namespace headroom::oom::detail {
namespace {

struct Found {
  const Rule* rule;
  std::size_t begin;
};

// `text` may be longer than its first line; what is found has to begin in that.
std::optional<Found> first_rule(std::span<const Group> groups, std::string_view text,
                                std::size_t first_line) {
  for (const Group& group : groups)
    for (const Rule& rule : group.rules)
      if (const auto found = find(rule.pattern, text, first_line))
        return Found{&rule, found->begin};
  return {};
}

template <std::size_t n>
bool any_matches(const std::array<std::string_view, n>& patterns, std::string_view text) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](std::string_view pattern) { return matches(pattern, text); });
}

// From the last full stop before `at`.
std::string_view sentence_before(std::string_view text, std::size_t at) {
  const std::string_view before = text.substr(0, at);
  const std::size_t stop = before.rfind(". ");
  return stop == std::string_view::npos ? before : before.substr(stop + 2);
}

// "If you encounter CUDA out of memory, try ...": advice, whatever happened.
bool is_advice(std::string_view before) {
  constexpr std::array<std::string_view, 22> kAdvice{
      "<if you",   "<if the",    "<if there", "<if this",          "<if cuda",    "<if gpu",
      "<if it ",   "<if your",   "<if an",    "<if memory",        "<in case of", "<in case",
      "<to avoid", "<avoid ",    "<prevent",  "<when you",         "<help with",  "<how to",
      "<ensure ",  "<otherwise", "<tip:",     "<will be killed if"};
  return any_matches(kAdvice, before);
}

// "you may not have enough memory": nobody knows.
bool is_hedged(std::string_view before) {
  constexpr std::array<std::string_view, 19> kHedges{
      "<may be",    "<may have",  "<may not",   "<may run",  "<may cause",
      "<may lead",  "<maybe ",    "<might ",    "<could be", "<could cause",
      "<possibly ", "<probably ", "<perhaps ",  "<likely ",  "<can cause",
      "<can lead",  "<would run", "<potential", "<risk of"};
  return any_matches(kHedges, before);
}

// Words that say on which side the memory is, for messages of programs that nobody listed.
bool speaks_of_device(std::string_view text) {
  constexpr std::array<std::string_view, 18> kWords{
      "<cuda", "<gpu",   "<vram>", "<hip>",   "<rocm",  "<xpu>",   "<npu",   "<hpu>",   "<mps>",
      "metal", "vulkan", "<hbm>",  "<device", "<cuda_", "<nvidia", "<cufft", "<cublas", "<sycl"};
  return any_matches(kWords, text);
}

bool speaks_of_host(std::string_view text) {
  constexpr std::array<std::string_view, 8> kWords{"<cpu",  "<ram>",   "<host ", "system memory",
                                                   "<swap", "<malloc", "<heap>", "<new ["};
  return any_matches(kWords, text);
}

constexpr std::array<std::string_view, 25> kWantOfMemory{"out of memory",
                                                         "out-of-memory",
                                                         "outofmemory",
                                                         "out_of_memory",
                                                         "oom error",
                                                         "failed to allocate*memory",
                                                         "failed to allocate*buffer",
                                                         "failed to allocate*bytes",
                                                         "failed to allocate*tensor",
                                                         "could not allocate*memory",
                                                         "could not allocate*bytes",
                                                         "couldn't allocate",
                                                         "unable to allocate",
                                                         "can't allocate",
                                                         "cannot allocate # ",
                                                         "cannot allocate*memory",
                                                         "memory allocation failed",
                                                         "memory allocation failure",
                                                         "memory allocation error",
                                                         "allocation failed",
                                                         "insufficient memory",
                                                         "not enough memory",
                                                         "not enough free memory",
                                                         "not enough available memory",
                                                         "memory exhausted"};

std::optional<std::size_t> want_of_memory(std::string_view text, std::size_t first_line) {
  for (const std::string_view pattern : kWantOfMemory)
    if (const auto found = find(pattern, text, first_line)) return found->begin;
  return {};
}

// "out_of_memory_retries: 3", "oom error handling = true": a setting is no event.
bool is_setting(std::string_view text) {
  const std::size_t end = text.find_first_of(":=");
  if (end == std::string_view::npos || end > 40) return false;
  const std::string_view value = text.substr(end + 1);
  return matches("true", value.substr(0, 6)) || matches("false", value.substr(0, 7)) ||
         (matches("#", value.substr(0, 3)) &&
          text.substr(0, end).find('_') != std::string_view::npos);
}

// A program nobody listed, with words anybody understands.
std::optional<Finding> by_plain_words(const Line& line, std::string_view text,
                                      std::string_view whole) {
  const auto begin = want_of_memory(text, line.text.size());
  if (!begin || is_setting(text.substr(*begin))) return {};
  const std::string_view near = text.substr(0, *begin + 300);
  Finding finding;
  if (speaks_of_device(near) && !speaks_of_host(near)) {
    finding = {Meaning::gpu, "device_memory", 0.8, 0};
  } else if (speaks_of_host(near) && !speaks_of_device(near)) {
    finding = {Meaning::host, "host_memory", 0.75, 0};
  } else if (speaks_of_device(whole) && matches("<out of memory>", text)) {
    finding = {Meaning::gpu, "device_memory", 0.6, 0};
  } else {
    finding = {Meaning::possible, "out_of_memory", 0.5, 0};
  }
  return finding;
}

Finding from(const Rule& rule) {
  return {rule.meaning, std::string(rule.kind), rule.confidence, 0};
}

// "Killed" alone, or as a shell tells of a job: "line 28:  8156 Killed    python3 main.py".
bool is_bare_kill(std::string_view text) {
  return text == "killed" || text == "killed: 9" || text.starts_with("killed (core") ||
         matches("line #: # killed>", text) || matches("] # killed>", text) ||
         matches("] killed>", text) || text.ends_with(" killed") || text.ends_with("zsh: killed") ||
         matches("zsh: killed>", text);
}

std::optional<Finding> memory_finding(const Line& line, std::string_view text,
                                      std::string_view whole) {
  auto found = first_rule(gpu_rules(), text, line.text.size());
  if (!found) found = first_rule(host_rules(), text, line.text.size());
  std::optional<Finding> finding;
  std::size_t begin = 0;
  if (found) {
    finding = from(*found->rule);
    begin = found->begin;
  } else {
    finding = by_plain_words(line, text, whole);
    begin = want_of_memory(text, line.text.size()).value_or(0);
  }
  if (!finding || finding->meaning == Meaning::possible) return finding;
  const std::string_view before = sentence_before(text, begin);
  if (is_advice(before)) return Finding{Meaning::harmless, "", 0, 0};
  if (is_hedged(before)) finding->meaning = Meaning::possible;
  return finding;
}

// An exception that a logger was given at the level of information is one nevertheless.
bool is_exception(std::string_view text) {
  return matches("error: ", text) || matches("exception: ", text) || text.ends_with("error");
}

// A warning ends nothing, except that schedulers and Spark warn of what they have killed.
std::optional<Finding> warned_kill(const Line& line) {
  const auto found = first_rule(host_rules(), line.text, line.text.size());
  if (!found) return {};
  const std::span<const Rule> killers = host_rules().front().rules;
  const bool is_killer =
      found->rule >= killers.data() && found->rule < killers.data() + killers.size();
  if (!is_killer && found->rule->kind != "java") return {};
  Finding finding = from(*found->rule);
  finding.confidence = std::min(finding.confidence, 0.75);
  return finding;
}

std::optional<Finding> finding_in(const Line& line, std::string_view text, std::string_view whole) {
  const std::size_t first_line = line.text.size();
  if (const auto found = first_rule(harmless_rules(), text, first_line)) return from(*found->rule);
  if (line.level == Level::warning) return warned_kill(line);
  if (const auto found = first_rule(named_reasons(), line.text, first_line))
    return from(*found->rule);
  auto finding = memory_finding(line, text, whole);
  if (finding && line.level == Level::debug && is_memory(*finding)) {
    if (!is_exception(line.text)) return {};
    finding->confidence = std::min(finding->confidence, 0.7);
  }
  if (finding) return finding;
  if (const auto found = first_rule(possible_rules(), text, first_line)) return from(*found->rule);
  if (is_bare_kill(line.text)) return Finding{Meaning::possible, "sigkill", 0.5, 0};
  if (line.level == Level::debug) return {};
  if (const auto found = first_rule(other_failures(), line.text, first_line))
    return from(*found->rule);
  return {};
}

// Nothing is found in a line without one of these, and most lines have none.
bool is_worth_a_look(std::string_view text) {
  constexpr std::array<std::string_view, 45> kTriggers{
      "memor",   "oom",          "alloc",    "kill",    "error",   "fail",     "status",  "exhaust",
      "resourc", "space",        "signal",   "fault",   "assert",  "xid",      "illegal", "abort",
      "timeout", "timed out",    "cancel",   "limit",   "quota",   "capac",    "skip",    "retry",
      "recover", "batch",        "mlx5",     "ndarray", "nvrm",    "corrupt",  "died",    "137",
      "vram",    "not possible", "bus",      "exceed",  "preempt", "watchdog", "invalid", "cuda",
      "align",   " ram",         "pressure", "buffer",  "larger"};
  return std::any_of(kTriggers.begin(), kTriggers.end(), [&](std::string_view trigger) {
    return text.find(trigger) != std::string_view::npos;
  });
}

bool mentions_device_anywhere(const std::vector<Line>& lines) {
  return std::any_of(lines.begin(), lines.end(),
                     [](const Line& line) { return speaks_of_device(line.text); });
}

}  // namespace

bool is_memory(const Finding& finding) {
  return finding.meaning == Meaning::gpu || finding.meaning == Meaning::host;
}

std::vector<Finding> findings_in(const std::vector<Line>& lines) {
  std::vector<Finding> findings;
  const std::string_view whole = mentions_device_anywhere(lines) ? "gpu" : "";
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].is_code || !is_worth_a_look(lines[i].text)) continue;
    auto finding = finding_in(lines[i], joined(lines, i), whole);
    if (!finding || finding->meaning == Meaning::harmless) continue;
    finding->line = i;
    findings.push_back(std::move(*finding));
  }
  return findings;
}

bool shows_progress(const Line& line) {
  constexpr std::array<std::string_view, 9> kWhere{"<epoch*#",     "<step*#",  "<iter*#",
                                                   "<iteration*#", "<batch*#", "<batches*#",
                                                   "<train*#",     "#/#",      "%|"};
  constexpr std::array<std::string_view, 12> kWhat{"<loss*#",   "<acc*#",   "<lr>*#",    "<eta*#",
                                                   "it/s",      "s/it",     "sec/step",  "<ppl*#",
                                                   "samples/s", "tokens/s", "<reward*#", "<ok>"};
  return any_matches(kWhere, line.text) && any_matches(kWhat, line.text);
}

}  // namespace headroom::oom::detail
