#include "headroom/supervise/usage.h"

#include <algorithm>

namespace headroom::supervise {
namespace {

Bytes used_by(const gpu::Card& card, const std::set<pid_t>& job) {
  Bytes used;
  if (!card.processes) return used;
  for (const gpu::GpuProcess& process : *card.processes)
    if (process.pid && process.used && job.contains(*process.pid)) used += *process.used;
  return used;
}

// A card that reports no utilisation may be busy.
bool is_busy(const gpu::Card& card) {
  return !card.utilization || *card.utilization > 0;
}

}  // namespace

Usage::Usage(std::set<gpu::Uuid> cards, std::size_t keep) : cards_(std::move(cards)), keep_(keep) {}

void Usage::note(const gpu::Machine& machine, const std::vector<pid_t>& pids) {
  const HostUse host = host_use(pids);
  note_host(host);
  UsageSample sample{.when = Clock::now(), .cards = {}, .host = host.peak};
  const std::set<pid_t> job(pids.begin(), pids.end());
  bool busy = false;
  for (const gpu::Card& card : machine.cards) {
    if (!cards_.contains(card.uuid) || !card.memory || !is_fresh(card, sample.when)) continue;
    busy = busy || is_busy(card);
    const Bytes by_job = used_by(card, job);
    sample.cards.push_back({.card = card.uuid,
                            .index = card.index,
                            .total = card.memory->total,
                            .used = card.memory->used,
                            .by_job = by_job});
    if (by_job > card_peak_.value_or(Bytes{0})) card_peak_ = by_job;
  }
  if (busy) last_activity_ = sample.when;
  last_machine_ = machine;
  samples_.push_back(std::move(sample));
  if (samples_.size() > keep_) samples_.pop_front();
}

void Usage::note_host(const HostUse& now) {
  if (now.peak.count == 0) return;
  const bool is_higher = !host_peak_ || (now.limit && host_peak_->limit
                                             ? ratio(now.peak, *now.limit) >
                                                   ratio(host_peak_->peak, *host_peak_->limit)
                                             : now.peak > host_peak_->peak);
  if (is_higher) host_peak_ = now;
}

}  // namespace headroom::supervise
