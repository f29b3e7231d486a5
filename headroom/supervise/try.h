// One try of a job: the values it was given, how it ended, and the memory it was seen to use.
// Everything that follows reads it: the next step, the history, the report.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "headroom/base/time.h"
#include "headroom/job/job.h"
#include "headroom/oom/forensics.h"
#include "headroom/oom/judgement.h"
#include "headroom/plan/plan_report.h"

namespace headroom::supervise {

struct Try {
  int number = 1;
  WallTime started{}, ended{};
  std::vector<std::string> command{};
  std::vector<std::string> gpus{};                   // UUIDs
  std::optional<long long> batch{}, accumulation{};  // std::nullopt if not mapped
  std::optional<std::string> resumed_from{};         // the checkpoint's path

  job::JobEnd end{};
  oom::Judgement judgement{};
  bool ended_stalled = false;  // by us, because it was stalled

  // Memory of the fullest card; of the host if that ran out, or without cards.
  std::optional<Bytes> peak{};                 // the most that the job was seen to use
  std::optional<Bytes> limit{};                // the most that it could have used
  std::optional<plan::PlanReport> reported{};  // the need that the program itself reported
  std::optional<Bytes> card_peak{};            // the most that the samples showed on one card
  std::vector<oom::CardSample> cards_at_end{};
  std::vector<oom::MemoryThen> samples{};  // the oldest first

  [[nodiscard]] bool worked() const { return !ended_stalled && end.exit_code == 0; }
  // Only if the judgement is sure enough to act on: a guess leads to no other try.
  [[nodiscard]] bool out_of_memory() const;
};

// "out of memory (KIND)", with its evidence unless the command printed that line itself.
[[nodiscard]] std::string cause_of(const Try& one);

// Further remarks about an end for the user, one sentence each.
[[nodiscard]] std::vector<std::string> remarks(const job::JobEnd& end);

// The report of the last try's out-of-memory, without changes.
[[nodiscard]] oom::Forensics forensics_of(const std::vector<Try>& tries);

}  // namespace headroom::supervise
