#include "headroom/supervise/aftermath.h"

#include <algorithm>

namespace headroom::supervise {
namespace {

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

}  // namespace

oom::Forensics aftermath(const oom::Judgement& judgement, const Usage& usage,
                         const std::set<pid_t>& pids, const std::vector<Tried>& tried,
                         const std::vector<TryRecord>& records) {
  oom::Forensics forensics;
  forensics.judgement = judgement;
  const bool of_host = judgement.verdict == oom::Verdict::host_oom;
  const std::vector<pid_t> job(pids.begin(), pids.end());
  if (!of_host)
    for (const gpu::Card& card : usage.last_machine().cards)
      if (usage.watches(card.uuid) && card.memory)
        forensics.cards.push_back(oom::card_then(card, job));
  for (const UsageSample& sample : usage.samples())
    forensics.samples.push_back(memory_then(sample, usage.samples().back().when, of_host));
  forensics.limit = tried.back().limit;
  for (std::size_t i = 0; i < tried.size(); ++i)
    forensics.tries.push_back({.batch = records[i].batch,
                               .accumulation = records[i].accumulation,
                               .out_of_memory = tried[i].out_of_memory,
                               .peak = tried[i].peak});
  return forensics;
}

}  // namespace headroom::supervise
