// One try of a job: it is run and watched to its end, the end is judged, and it is told what it
// showed of the job's needs.
//
//   Attempt attempt = run_attempt(std::move(launch), place, search, orders, listener);
//   if (is_out_of_memory(attempt.judgement)) tries.push_back(tried(attempt, place, batch));
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "headroom/oom/judgement.h"
#include "headroom/supervise/history.h"
#include "headroom/supervise/job.h"
#include "headroom/supervise/next_batch.h"
#include "headroom/supervise/place_search.h"
#include "headroom/supervise/usage.h"

namespace headroom::supervise {

struct Attempt {
  JobEnd end;
  oom::Judgement judgement;
  Usage usage;
  std::set<pid_t> pids;  // all that it ever had
  WallTime started;
  std::vector<std::string> command;
  std::optional<std::filesystem::path> checkpoint;  // from which it went on
  bool ended_stalled = false;                       // by us
};

[[nodiscard]] Attempt run_attempt(Launch launch, const Place& place, const PlaceSearch& search,
                                  const Orders& orders, const Listener& listener);

// What it could have had, and what it had when it ran out.
[[nodiscard]] Tried tried(const Attempt& attempt, const Place& place, long long batch);

// The line of the history, without batch and accumulation, which the attempt does not know.
[[nodiscard]] TryRecord record_of(const Attempt& attempt, const Place& place, const Tried& tried,
                                  int number);

// "out of memory (KIND)", with its proof unless that stands in the output just above.
[[nodiscard]] std::string cause_of(const Attempt& attempt);

// What is to be said of an end beside its verdict, a sentence each.
[[nodiscard]] std::vector<std::string> remarks(const JobEnd& end);

}  // namespace headroom::supervise
