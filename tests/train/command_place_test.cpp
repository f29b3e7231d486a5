// `headroom train` on cards that it shares with other jobs: what it may use, what it reserves, and
// what it says where there is too little.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>

#include "tests/train/command_world.h"

namespace headroom::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// The GPT on the tokens, on these cards. Its plain step needs some 22 MiB.
Arguments on(const TrainingWorld& world, const std::string& gpus, const Arguments& more = {}) {
  Arguments all = world.on_tokens("out", {"steps=3"}) + more;
  std::replace(all.begin(), all.end(), std::string("sim:1x64MiB"), gpus);
  return all;
}

// The GPT that a run makes itself: its least plan needs some 4 MiB.
Arguments tiny(const TrainingWorld& world, const std::string& gpus, const Arguments& more) {
  return Arguments{"model=gpt-tiny", "dataset=synthetic",
                   "--json",         "out=" + world.path("out"),
                   "--gpus",         gpus} +
         more;
}

Bytes bytes_at(const Json& document, const char* key) {
  return Bytes{document.at(key).get<std::int64_t>()};
}

Bytes peak_of(const Outcome& outcome) {
  return bytes_at(outcome.json().at("peak"), "reserved_bytes");
}

// Reserves so much of the box until its Running ends.
std::unique_ptr<Running> neighbour(const TrainingWorld& world, const std::string& gpus,
                                   const std::string& need) {
  auto running = world.start(
      {"run", "--need", need, "--gpus", gpus, "--", "sh", "-c", "echo here; exec sleep 1000"});
  EXPECT_TRUE(running->until([](const Running& one) { return one.out() == "here\n"; }))
      << running->err();
  return running;
}

std::vector<Json> leases(const TrainingWorld& world, const std::string& gpus) {
  return world.headroom({"lease", "list", "--json", "--gpus", gpus}).json().at("leases");
}

// ---- A plan fits into what the run may use ----

// A training planned with the free memory of the card, 64 MiB, of which another job had reserved 36
// and used none yet. That one died of an out-of-memory inside its own lease.
TEST(TrainPlace, APlanLeavesWhatOthersHaveReserved) {
  const TrainingWorld world;
  const std::string box = "sim:1x64MiB@shared";
  const auto other = neighbour(world, box, "36MiB");
  const Outcome planned = world.train(on(world, box, {"--dry-run"}));
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  EXPECT_EQ(bytes_at(planned.json(), "free_bytes"), Bytes{28 * kMiB});
  const Outcome trained = world.train(on(world, box));
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_LE(peak_of(trained), Bytes{28 * kMiB});
}

// The same inside `headroom run --need 300MiB`: the plan used 534.
TEST(TrainPlace, APlanFitsIntoTheLeaseInWhichTheRunWasStarted) {
  const TrainingWorld world;
  const Arguments outer{"run", "--need",        "28MiB", "--gpus", "sim:1x64MiB@outer",
                        "--",  HEADROOM_BINARY, "train"};
  const Outcome planned = world.headroom(outer + on(world, "sim:1x64MiB@outer", {"--dry-run"}));
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  EXPECT_EQ(bytes_at(Json::parse(lines_of(planned.out).at(0)), "free_bytes"), Bytes{28 * kMiB});
  const Outcome trained = world.headroom(outer + on(world, "sim:1x64MiB@outer"));
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const Json document = Json::parse(lines_of(trained.out).at(0));
  EXPECT_LE(bytes_at(document.at("peak"), "reserved_bytes"), Bytes{28 * kMiB});
}

// A short run beside a neighbour that left before its end remembered the small plan as the best
// with all of the card, and every later run began with it.
TEST(TrainPlace, APlanIsRememberedWithTheMemoryThatItWasChosenFor) {
  const TrainingWorld world;
  const std::string box = "sim:1x64MiB@left", record = world.path("out") + "/metrics.jsonl";
  const auto other = world.start({"run", "--need", "50MiB", "--gpus", box, "--", "sh", "-c",
                                  "echo here; until [ -s " + record + " ]; do :; done"});
  ASSERT_TRUE(other->until([](const Running& one) { return one.out() == "here\n"; }));
  const Outcome small = world.train(tiny(world, box, {"steps=9", "batch_size=32"}));
  ASSERT_EQ(small.exit_code, 0) << small.err;
  EXPECT_THAT(small.err, HasSubstr("parts: micro-batch"));
  EXPECT_EQ(other->wait().exit_code, 0);
  const Outcome again = world.train(tiny(world, box, {"steps=2", "batch_size=32"}));
  EXPECT_THAT(again.err,
              AllOf(HasSubstr("in one pass: micro-batch 32"), Not(HasSubstr("last time"))));
}

// It reserved 1.17 GiB for its plain batch and used 534 MiB, to the end of the run.
TEST(TrainPlace, TheLeaseIsAsLargeAsThePlanNeeds) {
  const TrainingWorld world;
  const std::string box = "sim:1x256MiB@lease";
  const Bytes needed = bytes_at(world.train(on(world, box, {"--dry-run"})).json(), "needed_bytes");
  const auto running = world.start_training(on(world, box, {"steps=1000000"}));
  Bytes reserved;
  EXPECT_TRUE(running->until([&](const Running&) {
    const auto now = leases(world, box);
    reserved = now.empty() ? Bytes{} : bytes_at(now[0], "reserved_bytes");
    return reserved == needed;
  })) << to_string(reserved)
      << " for " << to_string(needed) << "\n"
      << running->err();
  running->signal(SIGTERM);
  EXPECT_EQ(running->wait().exit_code, 128 + SIGTERM);
  EXPECT_TRUE(leases(world, box).empty());
}

// `lease end` says that the job is told; its log never said so.
TEST(TrainPlace, SaysThatItsLeaseWasEnded) {
  const TrainingWorld world;
  const std::string box = "sim:1x64MiB@ended";
  const auto running = world.start_training(on(world, box, {"steps=1000000"}));
  ASSERT_TRUE(running->until_err_has("step 1/")) << running->err();
  const std::string id = leases(world, box).at(0).at("id").get<std::string>();
  EXPECT_EQ(world.headroom({"lease", "end", id}).exit_code, 0);
  EXPECT_TRUE(running->until_err_has("lease " + id + " was ended by")) << running->err();
  running->signal(SIGTERM);
  EXPECT_EQ(running->wait().exit_code, 128 + SIGTERM);
}

// ---- Too little ----

// On a shared box a dry run waited for a lease and ended with 75, "no card has that much even when
// empty", without a plan.
TEST(TrainPlace, ADryRunAnswersWhatWaitingCannotChange) {
  const TrainingWorld world;
  const Outcome never = world.train(tiny(world, "sim:2x4MiB@small", {"--dry-run"}));
  EXPECT_EQ(never.exit_code, 2) << never.err;
  EXPECT_EQ(never.json().at("fits"), false);
  EXPECT_GT(bytes_at(never.json(), "needed_bytes"), Bytes{});
  const auto other = neighbour(world, "sim:1x64MiB@busy", "60MiB");
  const Outcome later = world.train(tiny(world, "sim:1x64MiB@busy", {"--dry-run"}));
  EXPECT_EQ(later.exit_code, 75) << later.err;
  EXPECT_EQ(later.json().at("fits"), false);
  EXPECT_EQ(bytes_at(later.json(), "free_bytes"), Bytes{4 * kMiB});
}

TEST(TrainPlace, WhereOtherJobsLeaveNoRoomItIsBusy) {
  const TrainingWorld world;
  const auto other = neighbour(world, "sim:1x64MiB@busy", "60MiB");
  const Outcome outcome = world.train(tiny(world, "sim:1x64MiB@busy", {"steps=2"}));
  EXPECT_EQ(outcome.exit_code, 75) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("try wait_for_gpu=true"));
}

// A run of 50 MiB was refused a card of 1 GiB: "need 3.91 GiB", from a key that nothing named.
TEST(TrainPlace, NeedsNoMoreThanTheRunUnlessAsked) {
  const TrainingWorld world;
  const std::string box = "sim:1x1GiB@wide";
  EXPECT_EQ(world.train(on(world, box)).exit_code, 0);
  const Outcome robust = world.train(on(world, box, {"--config-name", "robust"}));
  EXPECT_THAT(robust.err, Not(HasSubstr("CPU")));
  const Outcome asked = world.train(on(world, box, {"min_gpu_memory_mb=4000"}));
  EXPECT_EQ(asked.exit_code, 75);
  EXPECT_THAT(asked.err, AllOf(HasSubstr("need 3.91 GiB"), HasSubstr("min_gpu_memory_mb=4000")));
}

// ---- The budget ----

// `budget` did nothing: with 1GiB a run of 5.3 GiB of optimizer states had the same plan.
TEST(TrainPlace, ABudgetRefusesARunThatTakesMore) {
  const TrainingWorld world;
  const std::string box = "sim:1x1GiB";
  const Arguments tight{"model=gpt-tiny",
                        "dataset=synthetic",
                        "steps=2",
                        "budget=1MiB",
                        "out=" + world.path("out"),
                        "--gpus",
                        box};
  const Outcome planned = world.train(tight + Arguments{"--dry-run"});
  EXPECT_EQ(planned.exit_code, 2) << planned.err;
  EXPECT_THAT(planned.err, HasSubstr("more than the budget of 1.0 MiB"));
  EXPECT_EQ(world.train(tight).exit_code, 76);
  EXPECT_EQ(world.train(tight + Arguments{"budget=4MiB"}).exit_code, 0);
  EXPECT_EQ(world.train(tight + Arguments{"budget=1KiB"}).exit_code, 64);
}

// ---- Several cards ----

TEST(TrainPlace, ATeamLeasesAllItsCardsAtOnceAndItsLeaseFollowsEachStage) {
  const TrainingWorld world;
  const std::string box = "sim:4x64MiB@team";
  const auto other = neighbour(world, "sim:4x64MiB@team", "60MiB");  // on one of the four
  const auto running = world.start_training(
      tiny(world, box, {"replicas=1", "stages=2", "steps=1000000", "save_every=1000"}));
  std::vector<Json> mine;
  ASSERT_TRUE(running->until([&](const Running& one) {
    if (one.err().find("step ") == std::string::npos) return false;
    mine.clear();
    for (const Json& lease : leases(world, box))
      if (lease.at("pid") == running->pid()) mine.push_back(lease);
    return mine.size() == 2U;
  })) << running->err();
  EXPECT_NE(mine[0].at("uuid"), mine[1].at("uuid"));
  running->signal(SIGTERM);
  const Outcome done = running->wait();
  EXPECT_EQ(done.exit_code, 143) << done.err;
  for (const Json& lease : leases(world, box)) EXPECT_NE(lease.at("pid"), running->pid());
}

TEST(TrainPlace, ATeamThatFindsTooFewCardsSaysSo) {
  const TrainingWorld world;
  const Outcome outcome = world.train(tiny(world, "sim:2x64MiB@few", {"replicas=3"}));
  EXPECT_EQ(outcome.exit_code, 69) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("3 cards for replicas=3 stages=1"));
  const Outcome planned = world.train(tiny(world, "sim:2x64MiB@few", {"replicas=3", "--dry-run"}));
  EXPECT_EQ(planned.exit_code, 69) << planned.err;
  EXPECT_THAT(planned.err, HasSubstr("3 cards for replicas=3 stages=1"));
}

TEST(TrainPlace, ADryRunOfATeamFitsIntoWhatItCouldHaveOfEachCard) {
  const TrainingWorld world;
  const std::string box = "sim:2x64MiB@dry";
  const auto other = neighbour(world, box, "50MiB");
  const Outcome planned = world.train(tiny(world, box, {"replicas=2", "--dry-run"}));
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  const Json document = planned.json();
  EXPECT_EQ(document.at("free_bytes"), 14 * kMiB) << "of the fuller card";
  EXPECT_LE(document.at("needed_bytes"), document.at("free_bytes"));
}

}  // namespace
}  // namespace headroom::testing
