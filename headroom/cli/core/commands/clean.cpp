// `headroom clean`: explains who holds GPU memory. It removes only Headroom's own leftovers and
// ends only processes that the user names.
#include <fmt/format.h>

#include <unistd.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "headroom/base/error.h"
#include "headroom/base/interrupt.h"
#include "headroom/base/json.h"
#include "headroom/base/text.h"
#include "headroom/cli/core/gpus_option.h"
#include "headroom/cli/core/lease_view.h"
#include "headroom/cli/core/registry.h"
#include "headroom/cli/core/terminal.h"
#include "headroom/gpu/holders.h"
#include "headroom/machine/end_idle.h"
#include "headroom/machine/holders_at_work.h"
#include "headroom/machine/leftovers.h"
#include "headroom/machine/look.h"

namespace headroom::cli {
namespace {

struct CleanOptions {
  std::string gpus;
  std::vector<pid_t> end;
  bool stats_only = false;
  bool force = false;
  bool json = false;
};

Json holder_json(const gpu::HolderReport& report) {
  const bool on_card = report.card_index >= 0;
  return {{"uuid", on_card ? Json(to_string(report.card)) : Json()},
          {"pid", report.process ? Json(report.process->pid) : Json()},
          {"user", or_null(report.user)},
          {"command", or_null(report.command)},
          {"used_bytes", report.used ? Json(report.used->count) : Json()},
          {"age_s", report.age ? Json(report.age->count()) : Json()},
          {"class", to_string(report.holder_class)},
          {"why", report.why},
          {"action", report.action}};
}

std::string holder_text(const gpu::HolderReport& report, const Terminal& terminal) {
  std::string text = report.card_index >= 0 ? "GPU " + std::to_string(report.card_index) : "GPU ?";
  text += "  " + (report.used ? to_string(*report.used) : std::string("? bytes"));
  if (report.process) text += "  PID " + std::to_string(report.process->pid);
  if (report.user) text += " " + *report.user;
  if (report.age) text += ", " + duration_text(*report.age);
  text += "  " + terminal.paint(to_string(report.holder_class), Colour::bold) + "\n";
  if (report.command) text += "    " + fitted(*report.command, 72, terminal) + "\n";
  const int width = terminal.is_terminal ? terminal.width - 1 : 100;
  return text + wrapped(report.why, "    why: ", "         ", width) +
         wrapped(report.action, "    do:  ", "         ", width);
}

// The named processes must hold GPU memory: this is not a general kill.
std::vector<ProcessStat> named_holders(const std::vector<pid_t>& pids,
                                       const std::vector<gpu::HolderReport>& reports,
                                       const ProcessTable& processes) {
  std::vector<ProcessStat> named;
  for (const pid_t pid : pids) {
    const auto holds = [&](const auto& r) { return r.process && r.process->pid == pid; };
    const auto stat = processes.stat(pid);
    if (!stat || std::none_of(reports.begin(), reports.end(), holds))
      throw UsageError(expectation("--end", "a PID that headroom clean lists", std::to_string(pid),
                                   "headroom clean"));
    const auto same = [&](const ProcessStat& other) { return other.identity == stat->identity; };
    if (std::none_of(named.begin(), named.end(), same)) named.push_back(*stat);
  }
  return named;
}

// Returns kFailed if one was spared.
ExitCode end_named(const std::vector<ProcessStat>& named, const CleanOptions& options,
                   const ProcessTable& processes) {
  const Interrupt interrupt;
  std::vector<machine::EndAnswer> answers;
  {
    ProgressLine line(2);
    answers = machine::end_idle(named, options.gpus, processes, interrupt.token(), [&](int left) {
      line.show(fmt::format("watching {} for progress, {} s",
                            counted(static_cast<long long>(named.size()), "process"), left));
    });
  }
  if (answers.empty()) return interrupt.exit_code();
  bool all_ended = true;
  for (const machine::EndAnswer& answer : answers) {
    print_error(fmt::format("headroom clean: {}\n", answer.sentence));
    all_ended = all_ended && answer.ended;
  }
  return all_ended ? kOk : kFailed;
}

// On a terminal, asks about each process that looks left over; otherwise returns none.
std::vector<pid_t> ask_about(const std::vector<gpu::HolderReport>& reports,
                             const CleanOptions& options) {
  std::vector<pid_t> yes;
  const bool can_ask = ::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1;
  if (!options.force || options.json || !can_ask) return yes;
  for (const auto& report : reports) {
    const bool left_over = report.holder_class == gpu::HolderClass::orphan ||
                           report.holder_class == gpu::HolderClass::stopped;
    if (!left_over || !report.process) continue;
    print(fmt::format("End PID {} ({}, {})? [y/N] ", report.process->pid,
                      to_string(report.holder_class), report.command.value_or("?")));
    std::string answer;
    if (std::getline(std::cin, answer) && (answer == "y" || answer == "yes"))
      yes.push_back(report.process->pid);
  }
  return yes;
}

Bytes used_by_all(const gpu::Machine& machine) {
  Bytes used{0};
  for (const gpu::Card& card : machine.cards)
    if (card.memory && !card.slice) used += card.memory->used;
  return used;
}

std::string report_text(const machine::Look& look, const std::vector<gpu::HolderReport>& reports,
                        const Terminal& terminal) {
  std::string out;
  for (const auto& report : reports) out += holder_text(report, terminal);
  if (reports.empty()) {
    const std::string& why = look.machine.why_no_driver;
    out +=
        why.empty() ? "No process holds GPU memory.\n" : "The holders of GPU memory are unknown.\n";
  }
  if (const std::string leases = leases_at_a_glance(look); !leases.empty()) out += leases + "\n";
  for (const std::string& warning : look.warnings)
    out += std::string(terminal.warning()) + " " + warning + "\n";
  return out;
}

ExitCode run_clean(const CleanOptions& options) {
  const ProcessTable processes;
  const machine::Look look =
      machine::look_at_machine(options.gpus, {.activity = true, .keep_sampling = false});
  const auto reports =
      machine::holders_of(look.machine, watch::job_statuses(watch::status_folder(), processes),
                          processes, options.force);
  // Rejects a wrong PID before any change.
  auto to_end = named_holders(options.end, reports, processes);
  const Terminal terminal = standard_output();
  if (!options.json) print(report_text(look, reports, terminal));

  Bytes returned{0};
  ExitCode code = kOk;
  if (!options.stats_only) {
    const machine::Leftovers leftovers = machine::remove_leftovers(processes, options.force);
    returned += leftovers.returned;
    for (const std::string& line : leftovers.done)
      print_error(fmt::format("headroom clean: {}\n", line));
    const auto agreed = named_holders(ask_about(reports, options), reports, processes);
    to_end.insert(to_end.end(), agreed.begin(), agreed.end());
    if (!to_end.empty()) {
      code = end_named(to_end, options, processes);
      const machine::Look after = machine::look_at_machine(options.gpus);
      returned += std::max(Bytes{0}, used_by_all(look.machine) - used_by_all(after.machine));
    }
  }
  if (options.json) {
    Json document{{"schema", 1}, {"holders", Json::array()}, {"returned_bytes", returned.count}};
    for (const auto& report : reports) document["holders"].push_back(holder_json(report));
    print(to_line(document) + "\n");
  } else if (!options.stats_only) {
    print(wrapped(
        fmt::format(
            "Returned: {}. Clearing in one process frees nothing in another: a running job gives "
            "memory back only by itself (empty its cache, delete tensors) or by ending.",
            to_string(returned)),
        "", "", terminal.is_terminal ? terminal.width - 1 : 100));
  }
  return code;
}

}  // namespace

void add_clean(Registry& registry) {
  auto [command, options] = registry.add(
      &run_clean, "clean", "Explain what holds GPU memory, and free leftovers",
      "  headroom clean                 # explain every holder; remove only Headroom's leftovers\n"
      "  headroom clean --stats-only    # explain every holder; change nothing\n"
      "  headroom clean --force         # also hidden holders, and abandoned shared memory\n"
      "  headroom clean --end 4242      # end an idle process of yours\n\n"
      "clean ends a process only if you name it (or say yes on a terminal), it is yours, it\n"
      "showed no GPU activity and no CPU progress for 10 s, and its parent job is gone.\n"
      "clean never resets a GPU.");
  add_gpus_option(command, options->gpus);
  auto* stats = command->add_flag("--stats-only", options->stats_only,
                                  "Explain every holder; change nothing");
  auto* force =
      command->add_flag("--force", options->force,
                        "Also search for hidden holders, and free memory that needs no signal");
  auto* end =
      command->add_option("--end", options->end, "PIDs of the processes to end, if they are idle");
  stats->excludes(force)->excludes(end);
  command->add_flag("--json", options->json, "Print one JSON document");
}

}  // namespace headroom::cli
