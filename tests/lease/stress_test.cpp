// A tenth of what `make stress-lease` does (stress.cpp): many processes, many of them killed.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "headroom/base/json.h"
#include "headroom/base/process.h"

namespace headroom::lease {
namespace {

struct Outcome {
  int exit_code;
  Json figures;
};

Outcome stress(std::vector<std::string> options) {
  options.insert(options.begin(), LEASE_STRESS);
  const CommandResult run = run_command(options, Seconds(110));
  return {run.exit_code, parse_json(run.out, "lease_stress")};
}

#ifdef HEADROOM_SANITIZED
constexpr int kRounds = 15;  // a sanitizer's processes start some ten times as slowly
#else
constexpr int kRounds = 100;
#endif

TEST(LeaseStress, NothingIsPromisedTwiceWhileProcessesDie) {
  const auto [exit_code, figures] =
      stress({"--processes", "64", "--rounds", std::to_string(kRounds)});
  SCOPED_TRACE(figures.dump());
  EXPECT_EQ(exit_code, 0);
  EXPECT_EQ(figures["rounds"], 64 * kRounds);
  EXPECT_EQ(figures["violations"], 0);
  EXPECT_EQ(figures["stale"], 0);
  EXPECT_EQ(figures["late"], 0) << "a dead holder's share is free by the next audit";
  EXPECT_GT(figures["killed"], 64 * kRounds / 20);
  EXPECT_GT(figures["leases"], 64 * kRounds / 10);
#ifndef HEADROOM_SANITIZED  // whose processes are too slow to fill it
  EXPECT_GT(figures["fullest_bytes"].get<double>(), 0.9 * figures["limit_bytes"].get<double>())
      << "a card that never gets full proves nothing";
#endif
}

TEST(LeaseStress, MixedGangsOnEightCardsAllFinish) {
  const auto [exit_code, figures] =
      stress({"--processes", "32", "--rounds", "5", "--cards", "8", "--kill", "5"});
  SCOPED_TRACE(figures.dump());
  EXPECT_EQ(exit_code, 0);
  EXPECT_EQ(figures["timed_out"], 0);
  EXPECT_EQ(figures["violations"], 0);
}

// The auditor must catch this: the rule min(not reserved, free) promises memory twice. Whether that
// happens in one run depends on the order of the processes.
TEST(LeaseStress, TheAuditCatchesTheSmallerOfFreeAndUnreserved) {
  for (int seed = 1; seed <= 8; ++seed) {
    const auto [exit_code, figures] = stress({"--processes", "16", "--rounds", "50", "--kill", "0",
                                              "--naive", "--seed", std::to_string(seed)});
    if (figures["violations"] == 0) continue;
    EXPECT_EQ(exit_code, 1);
    return;
  }
  ADD_FAILURE() << "eight runs of the naive rule, and the auditor saw nothing";
}

}  // namespace
}  // namespace headroom::lease
