#include "headroom/supervise/attempt.h"

#include <algorithm>
#include <cstring>

#include "headroom/base/text.h"
#include "headroom/oom/classify.h"
#include "headroom/supervise/stall.h"

namespace headroom::supervise {
namespace {

constexpr Seconds kSampleInterval{1.0};

// What others had of the card that the failure's text speaks of: at the last sample, else when the
// place was taken. Nothing if it is not known which card that is.
std::optional<Bytes> by_others(const Attempt& attempt, const Place& place) {
  const int device = attempt.judgement.device.value_or(place.cards.size() == 1 ? 0 : -1);
  if (device < 0 || static_cast<std::size_t>(device) >= place.cards.size()) return {};
  const auto& [card, usable] = place.cards[static_cast<std::size_t>(device)];
  if (!attempt.usage.samples().empty())
    for (const CardUse& use : attempt.usage.samples().back().cards)
      if (use.card == card.uuid) return use.by_others();
  if (!card.memory) return {};
  return card.memory->total - usable;
}

}  // namespace

Attempt run_attempt(Launch launch, const Place& place, const PlaceSearch& search,
                    const Orders& orders, const Listener& listener) {
  std::set<gpu::Uuid> cards;
  for (const auto& pick : place.cards) cards.insert(pick.card.uuid);
  Attempt attempt{.end = {},
                  .judgement = {},
                  .usage = Usage(std::move(cards)),
                  .pids = {},
                  .started = std::chrono::system_clock::now(),
                  .command = launch.command,
                  .checkpoint = {}};
  const oom::HostWatch host;
  Stall stall(orders.stall);
  bool has_lease = place.lease.has_value();
  Job job(std::move(launch));
  attempt.end = job.run(kSampleInterval, [&](const Job& running) {
    const std::vector<pid_t> pids = running.pids();
    attempt.pids.insert(pids.begin(), pids.end());
    attempt.usage.note(search.known(), pids);
    if (const auto by = has_lease ? place.lease->ended_by() : std::nullopt) {
      has_lease = false;
      if (listener.say)
        listener.say("lease " + place.lease->claim().id + " was ended by " + *by +
                     ": the command runs on, but what it does not use yet is not kept for it");
    }
    const auto sentence = stall.look(running.last_output_at(), attempt.usage, pids);
    if (!sentence) return;
    if (listener.say) listener.say(*sentence);
    if (!orders.end_stalled) return;
    attempt.ended_stalled = true;
    job.end();
  });
  attempt.pids.insert(job.pid());
  attempt.judgement =
      oom::classify({.text = attempt.end.last_output,
                     .type_names = {},
                     .exit_code = attempt.end.exit_code,
                     .signal = attempt.end.signal,
                     .host = host.since({attempt.pids.begin(), attempt.pids.end()})});
  return attempt;
}

Tried tried(const Attempt& attempt, const Place& place, long long batch) {
  const oom::Judgement& judgement = attempt.judgement;
  Tried one{.batch = batch,
            .out_of_memory = is_out_of_memory(judgement),
            .peak = {},
            .asked = judgement.asked,
            .limit = {}};
  const bool of_host = judgement.verdict == oom::Verdict::host_oom || place.cards.empty();
  if (of_host) {
    if (const auto& host = attempt.usage.host_peak()) {
      one.peak = host->peak;
      one.limit = host->limit;
    }
    return one;
  }
  one.limit = place.room();
  one.peak = attempt.usage.card_peak();
  // The program's own last word is newer than any sample.
  const auto others = by_others(attempt, place);
  if (others && judgement.total && judgement.free) {
    const Bytes could_have = *judgement.total - *others;
    one.limit = std::max(one.limit.value_or(could_have), could_have);
    const Bytes had = could_have - *judgement.free;
    if (had > one.peak.value_or(Bytes{0})) one.peak = had;
  }
  return one;
}

TryRecord record_of(const Attempt& attempt, const Place& place, const Tried& tried, int number) {
  TryRecord record{.number = number,
                   .started = attempt.started,
                   .ended = std::chrono::system_clock::now(),
                   .exit_code = attempt.end.exit_code,
                   .signal = attempt.end.signal,
                   .verdict = to_string(attempt.judgement.verdict),
                   .kind = attempt.judgement.kind,
                   .evidence = attempt.judgement.evidence,
                   .asked = attempt.judgement.asked,
                   .peak = tried.peak,
                   .gpus = {},
                   .batch = {},
                   .accumulation = {},
                   .command = attempt.command,
                   .resumed_from = {}};
  for (const auto& pick : place.cards) record.gpus.push_back(to_string(pick.card.uuid));
  if (attempt.checkpoint) record.resumed_from = attempt.checkpoint->string();
  return record;
}

std::string cause_of(const Attempt& attempt) {
  const oom::Judgement& judgement = attempt.judgement;
  const std::string text = "out of memory (" + judgement.kind + ")";
  const bool is_shown = attempt.end.last_output.find(judgement.evidence) != std::string::npos;
  return is_shown ? text : text + ": " + judgement.evidence;
}

std::vector<std::string> remarks(const JobEnd& end) {
  std::vector<std::string> sentences;
  if (end.unwritten_errno)
    sentences.push_back("lost " + counted(end.unwritten_bytes, "byte") +
                        " of its output: " + std::strerror(*end.unwritten_errno));
  if (!end.stuck.empty())
    sentences.push_back("cannot be ended, stuck in the kernel, and still holds what it has: " +
                        join(end.stuck, "; "));
  if (!end.ended_rest.empty())
    sentences.push_back("ended what it had left behind: " + join(end.ended_rest, "; "));
  return sentences;
}

}  // namespace headroom::supervise
