#include "headroom/cli/core/top/picture.h"

#include <algorithm>

#include "headroom/base/text.h"
#include "headroom/machine/holders_at_work.h"
#include "headroom/watch/gpus_json.h"

namespace headroom::cli {
namespace {

ProcessRow row_of(const gpu::Card& card, const gpu::GpuProcess& process) {
  ProcessRow row{.card = card.index, .uuid = card.uuid, .used = process.used};
  if (process.pid) row.process = ProcessIdentity{*process.pid, process.start_ticks};
  row.user = process.user.value_or("?");
  row.command = process.command.value_or("?");
  if (process.kind == gpu::ProcessKind::other_namespace) row.command = "in another container";
  row.started = process.started;
  return row;
}

std::optional<watch::JobStatus> job_of(const ProcessRow& row,
                                       const std::vector<watch::JobStatus>& jobs) {
  const auto found = std::find_if(jobs.begin(), jobs.end(), [&](const watch::JobStatus& job) {
    return row.process == ProcessIdentity{job.pid, job.start_ticks};
  });
  return found == jobs.end() ? std::nullopt : std::optional(*found);
}

std::string lease_of(const ProcessRow& row, const machine::Look& look) {
  if (!row.process) return {};
  const auto found = look.seen.lease_of.find({row.process->pid, row.uuid});
  return found == look.seen.lease_of.end() ? "" : found->second;
}

std::vector<ProcessRow> rows_of(const machine::Look& look,
                                const std::vector<watch::JobStatus>& jobs) {
  std::vector<ProcessRow> rows;
  for (const gpu::Card& card : look.machine.cards) {
    for (const gpu::GpuProcess& process : card.processes.value_or(std::vector<gpu::GpuProcess>{})) {
      rows.push_back(row_of(card, process));
      rows.back().job = job_of(rows.back(), jobs);
      rows.back().lease = lease_of(rows.back(), look);
    }
    if (const auto rest = gpu::unlisted_memory(card))
      rows.push_back(
          {.card = card.index, .uuid = card.uuid, .command = "no listed process", .used = rest});
  }
  return rows;
}

// ---- Advice ----

// Memory that a left-over process of this user keeps from a waiting job.
std::string end_what_is_left_over(const Picture& picture, const std::vector<watch::JobStatus>& jobs,
                                  const ProcessTable& processes) {
  if (picture.waiting.empty()) return {};
  const auto wanted = [&](const gpu::Uuid& card) {
    const auto& cards = picture.waiting[0].waiter.wish.cards;
    return std::find(cards.begin(), cards.end(), card) != cards.end();
  };
  for (const auto& report : machine::holders_of(picture.machine, jobs, processes, false)) {
    const bool left_over = report.holder_class == gpu::HolderClass::orphan ||
                           report.holder_class == gpu::HolderClass::stopped;
    if (!left_over || !report.process || !wanted(report.card)) continue;
    return "PID " + std::to_string(report.process->pid) + " (" + to_string(report.holder_class) +
           ") holds " + (report.used ? to_string(*report.used) : "memory") + " on GPU " +
           std::to_string(report.card_index) + " that a waiting job wants; if it is left over, " +
           "select it and press e";
  }
  return {};
}

// The card with the most usable memory beside this one.
const gpu::Card* roomiest_other(const gpu::Machine& machine, const gpu::Uuid& own) {
  const gpu::Card* best = nullptr;
  for (const gpu::Card& card : machine.cards)
    if (card.uuid != own && gpu::usable_now(card) &&
        (!best || *gpu::usable_now(card) > *gpu::usable_now(*best)))
      best = &card;
  return best;
}

// Memory that the process of this row has and could still get where it is.
std::optional<Bytes> memory_within_reach(const gpu::Machine& machine, const ProcessRow& row) {
  for (const gpu::Card& card : machine.cards)
    if (card.uuid == row.uuid && gpu::usable_now(card) && row.used)
      return *gpu::usable_now(card) + *row.used;
  return {};
}

// A training that survives in smaller parts may run faster where it has more room.
std::string move_what_survived(const Picture& picture) {
  for (const ProcessRow& row : picture.processes) {
    if (!row.job || row.job->ooms_survived == 0) continue;
    const auto here = memory_within_reach(picture.machine, row);
    const gpu::Card* other = roomiest_other(picture.machine, row.uuid);
    if (!here || !other || *gpu::usable_now(*other) <= *here) continue;
    return row.job->what + " (PID " + std::to_string(row.job->pid) + ") survived " +
           counted(static_cast<long long>(row.job->ooms_survived), "OOM") + " on GPU " +
           std::to_string(row.card) + "; " + label(*other) + " has " +
           to_string(*gpu::usable_now(*other)) + " usable";
  }
  return {};
}

std::string advice_for(const Picture& picture, const std::vector<watch::JobStatus>& jobs,
                       const gpu::Advice& general, const ProcessTable& processes) {
  if (std::string advice = end_what_is_left_over(picture, jobs, processes); !advice.empty())
    return advice;
  if (std::string advice = move_what_survived(picture); !advice.empty()) return advice;
  return general.lines.empty() ? "" : general.lines.front();
}

}  // namespace

Picture picture_of(machine::Look look, const std::vector<watch::JobStatus>& jobs,
                   const ProcessTable& processes) {
  Picture picture{.taken = Clock::now(), .wall = std::chrono::system_clock::now()};
  picture.processes = rows_of(look, jobs);
  picture.waiting = machine::waiting_rows(look);
  picture.warnings = std::move(look.warnings);
  // The screen marks a stale card itself, and reports a missing driver where the cards would be.
  std::erase_if(picture.warnings, &watch::tells_age);
  std::erase(picture.warnings, look.machine.why_no_driver);
  picture.machine = std::move(look.machine);
  picture.advice = advice_for(picture, jobs, look.advice, processes);
  return picture;
}

bool is_stale(const gpu::Card& card, const Picture& picture, Clock::time_point now) {
  const auto old = age(card, now);
  return !old || *old > std::max(gpu::kFreshFor, 1.5 * picture.interval);
}

}  // namespace headroom::cli
