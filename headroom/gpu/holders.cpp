#include "headroom/gpu/holders.h"

#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <set>

#include "headroom/base/text.h"

namespace headroom::gpu {
namespace {

using namespace headroom::literals;

// A smaller unexplained amount is rounding and the driver's own bookkeeping, not a holder.
constexpr Bytes kWorthNaming = 64_MiB;

// "/usr/bin/zsh -l" is zsh, "-bash" is bash, "sshd: alice" and "tmux: server" are sshd and tmux.
std::string program_of(const std::string& command) {
  std::string program = command.substr(0, command.find(' '));
  program = program.substr(program.rfind('/') + 1);
  if (program.ends_with(':')) program.pop_back();
  if (program.starts_with('-')) program.erase(0, 1);
  return program;
}

// Compares whole names: "shepherd" is not sh, and its children must not pass as orphans.
bool is_one_of(const std::string& command, std::initializer_list<std::string_view> programs) {
  return std::find(programs.begin(), programs.end(), program_of(command)) != programs.end();
}

bool is_variant_of(const std::string& command, std::initializer_list<std::string_view> beginnings) {
  const std::string program = program_of(command);
  return std::any_of(beginnings.begin(), beginnings.end(),
                     [&](std::string_view beginning) { return program.starts_with(beginning); });
}

bool is_display(const GpuProcess& process) {
  if (process.kind == ProcessKind::graphics) return true;
  if (!process.command) return false;
  return is_one_of(*process.command, {"X", "sway"}) ||
         is_variant_of(*process.command,
                       {"Xorg", "Xwayland", "gnome-shell", "kwin_", "gdm-", "sddm"});
}

// A shell that runs a script or a command is a job; a shell with options only is interactive.
bool runs_a_script(const std::string& command) {
  auto arguments = split(command, ' ');
  arguments.erase(arguments.begin());
  return std::any_of(arguments.begin(), arguments.end(), [](std::string_view argument) {
    const bool is_option = argument.empty() || argument.starts_with('-');
    return !is_option || (!argument.starts_with("--") && argument.find('c') != argument.npos);
  });
}

bool is_shell(const ProcessFacts& process) {
  return is_one_of(process.command, {"bash", "zsh", "fish", "sh", "dash", "ksh", "tcsh", "csh"});
}

// Shells, terminals and session leaders outlive the programs they start; such a parent is not a
// sign of a running job.
bool is_interactive(const ProcessFacts& parent) {
  if (is_shell(parent)) return !runs_a_script(parent.command);
  return is_one_of(parent.command, {"tmux", "screen", "SCREEN", "sshd", "login", "su", "sudo"});
}

// `docker run image python train.py`, or a script that starts it: pid 1 is the job itself, and its
// children are not orphans.
bool is_a_job(const ProcessFacts& first) {
  return is_variant_of(first.command, {"python"}) ||
         is_one_of(first.command, {"torchrun", "accelerate", "deepspeed", "mpirun", "headroom"}) ||
         (is_shell(first) && !is_interactive(first));
}

// pid 1 and subreapers (systemd --user) adopt orphaned processes.
bool adopts_orphans(const ProcessFacts& parent, pid_t pid) {
  const bool starts_a_system =
      is_one_of(parent.command, {"systemd", "init", "docker-init", "tini", "dumb-init"}) ||
      is_variant_of(parent.command, {"containerd-shim"});
  return starts_a_system || (pid == 1 && !is_a_job(parent));
}

struct Parent {
  pid_t pid = 0;
  std::optional<ProcessFacts> facts;
};

Parent parent_of(const ProcessStat& process, const ProcessTable& processes) {
  Parent parent{.pid = process.parent};
  if (const auto stat = processes.stat(parent.pid)) parent.facts = processes.facts(*stat);
  return parent;
}

bool is_orphan(const Parent& parent) {
  return parent.pid < 1 || !parent.facts || adopts_orphans(*parent.facts, parent.pid);
}

void say(HolderReport& report, HolderClass holder_class, std::string why, std::string action) {
  report.holder_class = holder_class;
  report.why = std::move(why);
  report.action = std::move(action);
}

std::string end_hint(const HolderReport& report) {
  return "headroom clean --end " + std::to_string(report.process->pid);
}

void classify_own(HolderReport& report, const ProcessStat& stat, const ProcessTable& processes) {
  const Parent parent = parent_of(stat, processes);
  const std::string parent_text = "PID " + std::to_string(parent.pid);
  if (stat.state == 'Z' || stat.state == 'X') {
    say(report, HolderClass::zombie,
        fmt::format("it has ended, but {} has not collected it, and a child or a driver call keeps "
                    "its memory",
                    parent_text),
        "end or fix its parent, " + parent_text);
  } else if (stat.state == 'T' || stat.state == 't') {
    say(report, HolderClass::stopped, "it is stopped (Ctrl-Z or a debugger) and keeps its memory",
        fmt::format("continue it (kill -CONT {}) or end it: {}", stat.identity.pid,
                    end_hint(report)));
  } else if (stat.identity.pid == 1) {
    say(report, HolderClass::running,
        "it is the first process of this container, which ends with it",
        "clear inside it, or stop the container");
  } else if (is_orphan(parent)) {
    say(report, HolderClass::orphan,
        "its launcher is gone: this is a data loader or rank that was left behind, or a job "
        "started with nohup",
        "if it is left over: " + end_hint(report));
  } else {
    say(report, HolderClass::running,
        "it is running; clearing in one process frees nothing in another",
        "clear inside it (empty the cache, delete tensors), or wait for its end");
  }
}

HolderReport report_on(const Card& card, const GpuProcess& process, const ProcessTable& processes) {
  HolderReport report{.card = card.uuid,
                      .card_index = card.index,
                      .user = process.user,
                      .command = process.command,
                      .used = process.used};
  if (process.pid) report.process = ProcessIdentity{*process.pid, process.start_ticks};
  if (process.started) report.age = Seconds(std::chrono::system_clock::now() - *process.started);

  const auto stat = process.pid ? processes.stat(*process.pid) : std::nullopt;
  const auto facts = stat ? processes.facts(*stat) : std::nullopt;
  const bool is_there = stat && facts && stat->identity == report.process;
  if (process.kind == ProcessKind::other_namespace || !is_there) {
    say(report, HolderClass::other_namespace,
        "the driver lists a process that is invisible from here: it runs in another container, or "
        "is just ending",
        "look from the host, or ask the owner of the container");
  } else if (process.command && is_variant_of(*process.command, {"nvidia-cuda-mps"})) {
    say(report, HolderClass::mps_server,
        "it is the server of CUDA MPS: the memory of its clients is counted on it",
        "end the clients; the server gives the memory back");
  } else if (is_display(process)) {
    say(report, HolderClass::display, "it draws on this card", "leave it, or move the display");
  } else if (facts->uid != ::geteuid()) {
    say(report, HolderClass::other_user, "it belongs to " + facts->user, "ask " + facts->user);
  } else {
    classify_own(report, *stat, processes);
  }
  return report;
}

std::optional<HolderReport> unexplained(const Card& card) {
  const auto rest = unlisted_memory(card);
  if (!rest) return {};
  HolderReport report{.card = card.uuid, .card_index = card.index, .used = *rest};
  say(report, HolderClass::unattributed,
      card.processes->empty()
          ? "in use, but no process is listed: a job that has just ended, another container, or a "
            "driver error"
          : "in use beyond what the listed processes own: contexts, another container, or a job "
            "that is still being cleared",
      "look again in some seconds; if it stays, headroom clean --force searches for hidden "
      "holders");
  return report;
}

// Processes of this user that have the driver's files open but appear on no card: loader workers
// that inherited the files keep a dead trainer's memory alive (pytorch/pytorch#4031).
std::vector<HolderReport> hidden_holders(const Machine& machine, const ProcessTable& processes) {
  std::set<pid_t> listed{::getpid()};
  for (const Card& card : machine.cards)
    for (const GpuProcess& process : card.processes.value_or(std::vector<GpuProcess>{}))
      if (process.pid) listed.insert(*process.pid);
  std::vector<HolderReport> reports;
  for (const pid_t pid : processes.all()) {
    if (listed.contains(pid) || !processes.holds_open(pid, "/dev/nvidia").value_or(false)) continue;
    const auto stat = processes.stat(pid);
    const auto facts = stat ? processes.facts(*stat) : std::nullopt;
    if (!facts || facts->uid != ::geteuid()) continue;
    HolderReport report{.card = {},
                        .card_index = -1,
                        .process = stat->identity,
                        .user = facts->user,
                        .command = facts->command,
                        .age = Seconds(std::chrono::system_clock::now() - facts->started)};
    classify_own(report, *stat, processes);
    const bool orphan = report.holder_class == HolderClass::orphan;
    say(report, HolderClass::not_listed,
        std::string("it has the driver open, but the driver does not list it: ") +
            (orphan ? "a child of a job that is gone, which may keep that job's memory"
                    : "a child of a running job, or a monitor"),
        orphan ? end_hint(report) : "nothing, while its job runs");
    reports.push_back(std::move(report));
  }
  return reports;
}

}  // namespace

const char* to_string(HolderClass holder_class) {
  static constexpr std::array<const char*, 10> kNames{
      "running",         "orphan",     "zombie",  "stopped",    "other-user",
      "other-namespace", "mps-server", "display", "not-listed", "unattributed"};
  return kNames.at(static_cast<std::size_t>(holder_class));
}

std::optional<Bytes> unlisted_memory(const Card& card) {
  // A MIG card's figures are the sum of its slices: reporting both would count bytes twice.
  if (!card.memory || !card.processes || card.mig_enabled) return {};
  Bytes named{0};
  for (const GpuProcess& process : *card.processes) {
    if (!process.used) return {};
    named += *process.used;
  }
  const Bytes rest = card.memory->used - named;
  return rest < kWorthNaming ? std::nullopt : std::optional(rest);
}

std::vector<HolderReport> explain_holders(const Machine& machine, const ProcessTable& processes,
                                          bool search_harder) {
  std::vector<HolderReport> reports;
  for (const Card& card : machine.cards) {
    std::vector<HolderReport> on_card;
    for (const GpuProcess& process : card.processes.value_or(std::vector<GpuProcess>{}))
      on_card.push_back(report_on(card, process, processes));
    std::stable_sort(on_card.begin(), on_card.end(), [](const auto& a, const auto& b) {
      return a.used.value_or(Bytes{0}) > b.used.value_or(Bytes{0});
    });
    if (const auto rest = unexplained(card)) on_card.push_back(*rest);
    reports.insert(reports.end(), on_card.begin(), on_card.end());
  }
  if (search_harder)
    for (HolderReport& report : hidden_holders(machine, processes))
      reports.push_back(std::move(report));
  return reports;
}

std::optional<std::string> reason_to_spare(const Machine& machine, const ProcessTable& processes,
                                           const ProcessStat& earlier) {
  const auto now = processes.stat(earlier.identity.pid);
  if (!now || now->identity != earlier.identity) return "it is gone already";
  const auto facts = processes.facts(*now);
  if (!facts) return "it is gone already";
  if (facts->uid != ::geteuid()) return "it belongs to " + facts->user;
  if (now->identity.pid == 1) return "it is the first process here: the container ends with it";
  if (now->cpu_ticks != earlier.cpu_ticks)
    return "it used the CPU while it was watched: it is at work";
  for (const Card& card : machine.cards)
    for (const GpuProcess& process : card.processes.value_or(std::vector<GpuProcess>{}))
      if (process.pid == earlier.identity.pid && process.activity.value_or(0) > 0)
        return fmt::format("it kept {} busy in the last seconds", label(card));
  const Parent parent = parent_of(*now, processes);
  if (!is_orphan(parent) && !is_interactive(*parent.facts))
    return fmt::format("its parent job is alive (PID {}, {})", parent.pid,
                       parent.facts->command.substr(0, 40));
  return {};
}

}  // namespace headroom::gpu
