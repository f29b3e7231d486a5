#include "headroom/supervise/run_try.h"

#include <algorithm>
#include <set>

#include "headroom/oom/classify.h"
#include "headroom/supervise/stall.h"
#include "headroom/supervise/usage.h"

namespace headroom::supervise {
namespace {

constexpr Seconds kSampleInterval{1.0};

bool is_of_host(const Try& one, const Place& place) {
  return one.judgement.verdict == oom::Verdict::host_oom || place.cards.empty();
}

// Memory that other processes used on the card that the error message names: at the last sample,
// else when the place was taken. std::nullopt if that card is unknown.
std::optional<Bytes> by_others(const Try& one, const Usage& usage, const Place& place) {
  const int device = one.judgement.device.value_or(place.cards.size() == 1 ? 0 : -1);
  if (device < 0 || static_cast<std::size_t>(device) >= place.cards.size()) return {};
  const auto& [card, usable] = place.cards[static_cast<std::size_t>(device)];
  if (!usage.samples().empty())
    for (const CardUse& use : usage.samples().back().cards)
      if (use.card == card.uuid) return use.by_others();
  if (!card.memory) return {};
  return card.memory->total - usable;
}

// The limit that the job ran under, and its peak.
void note_peak(Try& one, const Usage& usage, const Place& place) {
  one.card_peak = usage.card_peak();
  if (is_of_host(one, place)) {
    if (const auto& host = usage.host_peak()) {
      one.peak = host->peak;
      one.limit = host->limit;
    }
    return;
  }
  one.limit = place.room();
  one.peak = one.card_peak;
  // The figures of the error message are newer than any sample.
  const oom::Judgement& judgement = one.judgement;
  const auto others = by_others(one, usage, place);
  if (!others || !judgement.total || !judgement.free) return;
  const Bytes could_have = *judgement.total - *others;
  one.limit = std::max(one.limit.value_or(could_have), could_have);
  const Bytes had = could_have - *judgement.free;
  if (had > one.peak.value_or(Bytes{0})) one.peak = had;
}

const CardUse* fullest(const UsageSample& sample) {
  const auto free = [](const CardUse& card) { return card.total - card.used; };
  const auto found =
      std::min_element(sample.cards.begin(), sample.cards.end(),
                       [&](const CardUse& a, const CardUse& b) { return free(a) < free(b); });
  return found == sample.cards.end() ? nullptr : &*found;
}

oom::MemoryThen memory_then(const UsageSample& sample, Clock::time_point end, bool of_host) {
  oom::MemoryThen then{.before_end = end - sample.when, .used = sample.host, .job_used = {}};
  const CardUse* card = of_host ? nullptr : fullest(sample);
  if (card != nullptr) {
    then.used = card->used;
    then.job_used = card->by_job;
  }
  return then;
}

// The cards at the end and the minutes before, for the report.
void note_samples(Try& one, const Usage& usage, const std::vector<pid_t>& pids) {
  const bool of_host = one.judgement.verdict == oom::Verdict::host_oom;
  if (!of_host)
    for (const gpu::Card& card : usage.last_machine().cards)
      if (usage.watches(card.uuid) && card.memory)
        one.cards_at_end.push_back(oom::card_sample(card, pids));
  for (const UsageSample& sample : usage.samples())
    one.samples.push_back(memory_then(sample, usage.samples().back().when, of_host));
}

// Looks at the running job once a second.
class Watch {
 public:
  Watch(const Place& place, const std::function<gpu::Machine()>& cards, const Orders& orders,
        const Listener& listener)
      : place_(place), cards_(cards), orders_(orders), listener_(listener) {}

  void look(job::Job& job, Try& one) {
    const std::vector<pid_t> pids = job.pids();
    pids_.insert(pids.begin(), pids.end());
    usage_.note(cards_(), pids);
    tell_of_ended_lease();
    const auto sentence = stall_.look(job.last_output_at(), usage_, pids);
    if (!sentence) return;
    listener_.tell(*sentence);
    if (!orders_.end_stalled) return;
    one.ended_stalled = true;
    job.end();
  }
  [[nodiscard]] const Usage& usage() const { return usage_; }
  // All processes that the job ever had.
  [[nodiscard]] std::vector<pid_t> pids(pid_t command) {
    pids_.insert(command);
    return {pids_.begin(), pids_.end()};
  }

 private:
  void tell_of_ended_lease() {
    const auto by = has_lease_ ? place_.lease->ended_by() : std::nullopt;
    if (!by) return;
    has_lease_ = false;
    listener_.tell(
        "lease " + place_.lease->claim().id + " was ended by " + *by +
        ": the command runs on, but memory that it does not use yet is no longer reserved");
  }
  static std::set<gpu::Uuid> uuids(const Place& place) {
    std::set<gpu::Uuid> cards;
    for (const auto& pick : place.cards) cards.insert(pick.card.uuid);
    return cards;
  }

  const Place& place_;
  const std::function<gpu::Machine()>& cards_;
  const Orders& orders_;
  const Listener& listener_;
  Usage usage_{uuids(place_)};
  Stall stall_{orders_.stall};
  bool has_lease_ = place_.lease.has_value();
  std::set<pid_t> pids_;
};

}  // namespace

Try run_try(job::Launch launch, const Place& place, const std::function<gpu::Machine()>& cards,
            const Orders& orders, const Listener& listener) {
  Try one{.started = std::chrono::system_clock::now(), .command = launch.command};
  for (const auto& pick : place.cards) one.gpus.push_back(to_string(pick.card.uuid));
  const oom::HostWatch host;
  Watch watch(place, cards, orders, listener);
  const plan::PlanReportFile report;
  launch.environment.push_back(report.variable());
  job::Job job(std::move(launch));
  one.end = job.run(kSampleInterval, [&](const job::Job&) { watch.look(job, one); });
  const std::vector<pid_t> pids = watch.pids(job.pid());
  one.judgement = oom::classify({.text = one.end.last_output,
                                 .type_names = {},
                                 .exit_code = one.end.exit_code,
                                 .signal = one.end.signal,
                                 .host = host.since(pids)});
  one.reported = plan::read_plan_report(report.path());
  note_peak(one, watch.usage(), place);
  note_samples(one, watch.usage(), pids);
  one.ended = std::chrono::system_clock::now();
  return one;
}

}  // namespace headroom::supervise
