#include "headroom/oom/classify.h"

#include <algorithm>
#include <array>
#include <csignal>

#include "headroom/base/text.h"
#include "headroom/oom/detail/exceptions.h"
#include "headroom/oom/detail/figures.h"
#include "headroom/oom/detail/findings.h"
#include "headroom/oom/detail/lines.h"
#include "headroom/oom/detail/pattern.h"
#include "headroom/oom/detail/progress.h"

namespace headroom::oom {
namespace {

using detail::Finding;
using detail::Line;
using detail::Meaning;

constexpr std::size_t kLongestEvidence = 1000;
constexpr std::size_t kNeighbours = 12;  // lines this close report the same failure

struct Log {
  std::vector<Line> lines;
  std::vector<Finding> findings;
  std::vector<detail::Progress> progress;
  std::vector<std::size_t> survived;  // lines that say so, in order
};

Log read(std::string_view text) {
  Log log;
  log.lines = detail::lines_of(text);
  log.findings = detail::findings_in(log.lines);
  log.progress = detail::progress_in(log.lines);
  for (const Finding& finding : log.findings)
    if (finding.meaning == Meaning::survived) log.survived.push_back(finding.line);
  return log;
}

bool has_memory(const Log& log, std::size_t line) {
  return std::any_of(log.findings.begin(), log.findings.end(), [&](const Finding& finding) {
    return finding.line == line && detail::is_memory(finding);
  });
}

Judgement judgement_of(Verdict verdict, std::string_view kind, double confidence,
                       std::string evidence) {
  Judgement judgement;
  judgement.verdict = verdict;
  judgement.kind = kind;
  judgement.confidence = confidence;
  judgement.evidence = std::move(evidence);
  return judgement;
}

std::string evidence_of(const Log& log, const Finding& finding) {
  std::string_view printed = trim(log.lines[finding.line].printed);
  return std::string(printed.substr(0, kLongestEvidence));
}

Verdict verdict_of(Meaning meaning) {
  if (meaning == Meaning::gpu) return Verdict::gpu_oom;
  if (meaning == Meaning::host) return Verdict::host_oom;
  return meaning == Meaning::other ? Verdict::not_oom : Verdict::unknown;
}

Judgement from(const Log& log, const Finding& finding) {
  return judgement_of(verdict_of(finding.meaning), finding.kind, finding.confidence,
                      evidence_of(log, finding));
}

std::optional<int> signal_of(const Ending& ending) {
  if (ending.signal) return ending.signal;
  if (!ending.exit_code) return {};
  if (*ending.exit_code > 128 && *ending.exit_code < 128 + 65) return *ending.exit_code - 128;
  if (*ending.exit_code < 0 && *ending.exit_code > -65) return -*ending.exit_code;
  return {};
}

bool ends_in_success(const Log& log, std::size_t from) {
  constexpr auto kSuccess = std::to_array<std::string_view>(
      {"saved to", "saved in", "training complete", "finished training", "training finished",
       "successfully", "done.", "executed in"});
  return std::any_of(
      log.lines.begin() + static_cast<std::ptrdiff_t>(std::min(from, log.lines.size())),
      log.lines.end(), [&](const Line& line) { return detail::matches_any(kSuccess, line.text); });
}

// True if the finding is the last message of the program: all later lines continue it.
bool ends_log(const Log& log, const Finding& finding) {
  for (std::size_t i = finding.line + 1; i < log.lines.size(); ++i)
    if (log.lines[i].starts_record) return false;
  return true;
}

// True if the program went on after this finding: it says so nearby, or its steps continue.
bool was_survived(const Log& log, const Finding& finding, const Ending& ending) {
  constexpr std::size_t kClose = 40;
  const bool ended_well = ending.exit_code == 0 && !ending.signal;
  if (detail::goes_on(log.lines, log.progress, finding.line, ended_well)) return true;
  // "Ran out of memory, retrying ...": the exception may be printed right after it. A later failure
  // is not survived, nor is the last message of a program that failed.
  const bool last_word = ending.exit_code.value_or(0) != 0 && ends_log(log, finding);
  const std::size_t first = finding.line > 0 && !last_word ? finding.line - 1 : finding.line;
  const auto said = std::lower_bound(log.survived.begin(), log.survived.end(), first);
  return said != log.survived.end() && *said <= finding.line + kClose;
}

// True if all later lines belong to the message: figures, wrapped or indented lines, a run summary.
bool is_last_message(const Log& log, const Finding& finding) {
  for (std::size_t i = finding.line + 1; i < log.lines.size(); ++i) {
    const Line& line = log.lines[i];
    const bool belongs = line.is_quoted || line.indent > 0 || detail::matches("*~*", line.text) ||
                         line.text.starts_with("wandb:");
    if (!belongs) return false;
  }
  return true;
}

// A program that ends well has survived everything but its last message: its trainer may have
// swallowed that exception and stopped.
bool is_told_by_end(const Log& log, const Finding& finding, const Ending& ending) {
  if (ending.exit_code != 0 || ending.signal) return true;
  const bool last_line = finding.line + 1 == log.lines.size();
  return last_line || (finding.raised && is_last_message(log, finding));
}

// True after a sticky error of the card, which makes every later allocation fail.
bool stands_after_a_broken_card(const Log& log, std::size_t which) {
  return std::any_of(log.findings.begin(),
                     log.findings.begin() + static_cast<std::ptrdiff_t>(which),
                     [](const Finding& finding) {
                       return finding.meaning == Meaning::other &&
                              (finding.kind == "cuda_runtime" || finding.kind == "kernel");
                     });
}

// The card itself failed later, or the program did, for a reason other than memory.
bool ends_with_another_error(const Log& log, std::size_t which) {
  const Finding& last = log.findings.back();
  return log.findings.size() > which + 1 && last.meaning == Meaning::other &&
         (last.kind == "cuda_runtime" || last.kind == "python_error");
}

// The highest confidence that the circumstances allow.
double most_confidence(const Log& log, std::size_t which, const Judgement& judgement,
                       const Ending& ending) {
  constexpr Bytes kTiny{4096};  // a failure at this size suggests another cause
  if (ending.exit_code == 0) return 0.6;
  if (ends_in_success(log, log.findings[which].line + 1)) return 0.7;
  if (ends_with_another_error(log, which)) return 0.7;
  if (judgement.asked && *judgement.asked < kTiny) return 0.7;
  // Twice the request was free: a limit of the process, or another reason, refused it.
  if (judgement.asked && judgement.free && *judgement.asked + *judgement.asked < *judgement.free)
    return 0.75;
  // A process that the kernel kills cannot set its exit code.
  if (judgement.kind == "kernel" && ending.exit_code && signal_of(ending) != SIGKILL) return 0.75;
  return 1;
}

// The figures of the message; findings nearby on the same side (device or host) add missing ones.
detail::Figures figures_around(const Log& log, const Finding& finding) {
  const auto figures_of = [&](const Finding& one) {
    return detail::figures_in(detail::joined(log.lines, one.line, 8));
  };
  detail::Figures figures = figures_of(finding);
  for (const Finding& other : log.findings) {
    const std::size_t apart =
        std::max(other.line, finding.line) - std::min(other.line, finding.line);
    if (other.meaning != finding.meaning || apart > kNeighbours) continue;
    const detail::Figures more = figures_of(other);
    if (!figures.asked) figures.asked = more.asked;
    if (!figures.total) figures.total = more.total;
    if (!figures.free) figures.free = more.free;
    if (!figures.cached) figures.cached = more.cached;
    if (!figures.device) figures.device = more.device;
  }
  return figures;
}

Judgement judgement_of_memory(const Log& log, std::size_t which, const Ending& ending) {
  const Finding& finding = log.findings[which];
  Judgement judgement = from(log, finding);
  const detail::Figures figures = figures_around(log, finding);
  judgement.asked = figures.asked;
  judgement.total = figures.total;
  judgement.free = figures.free;
  judgement.cached = figures.cached;
  if (finding.meaning == Meaning::gpu) judgement.device = figures.device;
  if (judgement.asked && *judgement.asked >= detail::kBeyondAnyDevice) {
    judgement.verdict = Verdict::unknown;  // a corrupt size: a smaller batch would not help
    judgement.confidence = 0.4;
  }
  if (stands_after_a_broken_card(log, which))
    judgement = judgement_of(Verdict::unknown, judgement.kind, 0.4, judgement.evidence);
  judgement.confidence =
      std::min(judgement.confidence, most_confidence(log, which, judgement, ending));
  return judgement;
}

// The killed process may be another one, and unlisted words may mean anything: a cause that the
// program itself names later outranks both.
bool is_outranked(const Log& log, const Finding& finding) {
  if (!finding.is_weak && !finding.of_killer) return false;
  const auto is_other = [&](const Finding& other) {
    return other.line > finding.line && other.is_named;
  };
  if (std::any_of(log.findings.begin(), log.findings.end(), is_other)) return true;
  for (std::size_t i = finding.line + 1; finding.is_weak && i < log.lines.size(); ++i)
    if (!log.lines[i].is_quoted && detail::begins_with_raised(log.lines[i].text) &&
        !has_memory(log, i))
      return true;
  return false;
}

// The first cause: of several ranks the first that ran out of memory, not the lost connections and
// timeouts that the others report then. Among lines close together the more confident one counts.
std::optional<std::size_t> first_cause(const Log& log, const Ending& ending) {
  std::optional<std::size_t> first;
  for (std::size_t i = 0; i < log.findings.size(); ++i) {
    const Finding& finding = log.findings[i];
    if (!detail::is_memory(finding) || !is_told_by_end(log, finding, ending)) continue;
    if (is_outranked(log, finding) || was_survived(log, finding, ending)) continue;
    if (!first) {
      first = i;
      continue;
    }
    const Finding& best = log.findings[*first];
    const bool near = finding.line - best.line <= kNeighbours;
    const bool surer =
        best.meaning == finding.meaning && finding.confidence > best.confidence + 0.04;
    if (near && (surer || (best.is_weak && !finding.is_weak))) first = i;
  }
  return first;
}

// By the types of the exceptions, the outermost first: the innermost that is known is the cause.
std::optional<Judgement> by_types(const std::vector<std::string>& names) {
  std::optional<Judgement> judgement;
  for (const std::string& name : names) {
    if (const auto* rule = detail::first_rule(detail::rules().types, lower(name)))
      judgement = judgement_of(verdict_of(rule->meaning), rule->kind, rule->confidence, name);
  }
  return judgement;
}

// By the system's counters. A kill in our own control group, or a line that names one of our
// processes, is proof; a kill elsewhere on the machine is a hint.
std::optional<Judgement> by_host(const Ending& ending) {
  if (!ending.host) return {};
  const HostKills& host = *ending.host;
  const auto by_kernel = [](double confidence, std::string evidence) {
    return judgement_of(Verdict::host_oom, "kernel", confidence, std::move(evidence));
  };
  if (!host.kernel_line.empty()) return by_kernel(0.95, host.kernel_line);
  const bool killed = signal_of(ending) == SIGKILL;
  if (host.kills_in_group.value_or(0) > 0)
    return by_kernel(
        killed ? 0.95 : 0.85,
        "memory.events: " + counted(*host.kills_in_group, "process") + " killed for memory");
  if (killed && !host.kills_in_group && host.kills_on_machine.value_or(0) > 0)
    return by_kernel(
        0.7, "vmstat: " + counted(*host.kills_on_machine, "process") + " killed for memory here");
  return {};
}

// By the exit status alone.
Judgement by_status(const Ending& ending) {
  struct Known {
    int signal;
    Verdict verdict;
    const char* kind;
    double confidence;
  };
  constexpr Known kSignals[] = {
      {SIGKILL, Verdict::unknown, "sigkill", 0.5}, {SIGSEGV, Verdict::not_oom, "sigsegv", 0.8},
      {SIGTERM, Verdict::not_oom, "sigterm", 0.9}, {SIGINT, Verdict::not_oom, "sigint", 0.95},
      {SIGHUP, Verdict::not_oom, "sighup", 0.9},   {SIGABRT, Verdict::unknown, "abort", 0.5},
      {SIGBUS, Verdict::unknown, "sigbus", 0.5}};
  for (const Known& known : kSignals)
    if (signal_of(ending) == known.signal)
      return judgement_of(known.verdict, known.kind, known.confidence,
                          "ended by signal " + std::to_string(known.signal));
  if (ending.exit_code == 124)
    return judgement_of(Verdict::not_oom, "timeout", 0.8, "exit code 124");
  if (ending.exit_code == 0) return judgement_of(Verdict::not_oom, "success", 0.9, "exit code 0");
  return judgement_of(Verdict::unknown, "", 0.3, "");
}

// Without a memory failure in the text: the first doubtful failure; if there is none, the most
// confident other one, the last of equals.
std::optional<Judgement> by_other_failures(const Log& log) {
  const Finding* last = nullptr;
  for (const Finding& finding : log.findings) {
    if (finding.meaning == Meaning::possible) return from(log, finding);
    if (finding.meaning == Meaning::other && (!last || finding.confidence >= last->confidence))
      last = &finding;
  }
  if (last == nullptr) return {};
  return from(log, *last);
}

// A program that rejects its arguments ends with 2, or with 64 (sysexits.h), and has done nothing
// that could take memory.
std::optional<Judgement> by_usage(const Log& log, const Ending& ending) {
  if (ending.exit_code != 2 && ending.exit_code != 64) return {};
  for (const Finding& finding : log.findings)
    if (finding.kind == "usage") return from(log, finding);
  return {};
}

// Exit 0, but no sign that the program recovered from an out-of-memory: unknown.
std::optional<Judgement> by_what_was_swallowed(const Log& log, const Ending& ending) {
  for (const Finding& finding : log.findings)
    if (detail::is_memory(finding) && !was_survived(log, finding, ending))
      return judgement_of(Verdict::unknown, finding.kind, 0.5, evidence_of(log, finding));
  return {};
}

}  // namespace

Judgement classify(const Ending& ending) {
  const Log log = read(ending.text);
  if (auto judgement = by_usage(log, ending)) return *judgement;
  const std::optional<std::size_t> cause = first_cause(log, ending);
  std::optional<Judgement> host = by_host(ending);
  if (cause) {
    Judgement judgement = judgement_of_memory(log, *cause, ending);
    const bool unsure = judgement.verdict == Verdict::unknown || judgement.confidence < kCertain;
    return host && unsure && host->confidence > judgement.confidence ? *host : judgement;
  }
  if (auto judgement = by_types(ending.type_names)) return *judgement;
  const auto named = by_other_failures(log);
  const bool killed = signal_of(ending) == SIGKILL;
  if (host && (killed || !named || named->verdict == Verdict::unknown)) return *host;
  const bool plain_end = ending.exit_code == 0 && !ending.signal;
  if (!plain_end && named) return *named;
  if (auto judgement = by_what_was_swallowed(log, ending)) return *judgement;
  return by_status(ending);
}

}  // namespace headroom::oom
