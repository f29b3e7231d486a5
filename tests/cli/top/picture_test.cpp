// What `headroom top` makes of a look at the machine: rows with their trainings, and advice.
#include "headroom/cli/core/top/picture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/watch/gpus_json.h"
#include "tests/gpu/fixtures/cards.h"
#include "tests/gpu/fixtures/processes.h"

namespace headroom::cli {
namespace {

using namespace gpu::fixtures;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

machine::Look look_at(std::vector<gpu::Card> cards) {
  return machine::look_at_sample(machine_of(std::move(cards)), {}, {});
}

gpu::GpuProcess of(const ProcessIdentity& identity, Bytes used) {
  gpu::GpuProcess one = process(identity.pid, used);
  one.start_ticks = identity.start_ticks;
  return one;
}

TEST(TopPicture, GivesATrainingToItsOwnProcessOnly) {
  gpu::Card card0 = card(0, 5_GiB), card1 = card(1, 1_GiB);
  card0.processes = {of({7, 70}, 5_GiB)};
  card1.processes = {of({7, 71}, 1_GiB)};
  const Picture picture =
      picture_of(look_at({card0, card1}), {{.pid = 7, .start_ticks = 70, .what = "train gpt2"}});
  ASSERT_EQ(picture.processes.size(), 2U);
  EXPECT_EQ(picture.processes[0].job.value().what, "train gpt2");
  EXPECT_FALSE(picture.processes[1].job) << "the number was used again";
}

TEST(TopPicture, NamesMemoryThatNoListedProcessOwns) {
  gpu::Card full = card(0, 20_GiB);
  full.processes = {process(7, 5_GiB), hidden_process(1_GiB)};
  const Picture picture = picture_of(look_at({full}), {});
  ASSERT_EQ(picture.processes.size(), 3U);
  EXPECT_EQ(picture.processes[1].command, "in another container");
  EXPECT_EQ(picture.processes[2].command, "no listed process");
  EXPECT_EQ(picture.processes[2].used, 14_GiB);
  EXPECT_FALSE(picture.processes[2].process);
}

TEST(TopPicture, AdvisesWhereATrainingWithOomsWouldHaveRoom) {
  gpu::Card card0 = card(0, 20_GiB);
  card0.utilization = 90;
  card0.processes = {of({7, 70}, 5_GiB)};
  const std::vector<watch::JobStatus> jobs{
      {.pid = 7, .start_ticks = 70, .what = "train gpt2", .ooms_survived = 2}};
  EXPECT_EQ(picture_of(look_at({card0, card(1)}), jobs).advice,
            "train gpt2 (PID 7) survived 2 OOMs on GPU 0; GPU 1 has 23.94 GiB usable");
  const std::string elsewhere = picture_of(look_at({card0, card(1, 15_GiB)}), jobs).advice;
  EXPECT_EQ(elsewhere.find("survived"), std::string::npos) << "no card has more";
}

TEST(TopPicture, AdvisesToEndWhatIsLeftOverWhileAJobWaits) {
  const Child child;
  ASSERT_TRUE(child.signal_until(SIGSTOP, 'T'));
  gpu::Card full = card(0, 20_GiB);
  full.processes = {of(child.identity(), 20_GiB)};
  machine::Look look = look_at({full});
  lease::Waiter waiter;
  waiter.wish = {.need = 10_GiB, .cards = {full.uuid}};
  look.leases.waiting = {waiter};
  const Picture picture = picture_of(std::move(look), {});
  EXPECT_THAT(picture.advice,
              AllOf(HasSubstr("PID " + std::to_string(child.pid()) + " (stopped) holds 20.00 GiB"),
                    HasSubstr("press e")));
  EXPECT_EQ(picture.waiting.size(), 1U);
}

// Started with `&`, a training at work was called an orphan right below its own step, and the
// advice was to end it.
TEST(TopPicture, ATrainingThatStepsIsNotLeftOver) {
  FakeProc proc;
  proc.add({.pid = 50, .parent = 1, .command = "headroom-engine train"});
  gpu::Card full = card(0, 20_GiB);
  full.processes = {of({50, 1000}, 20_GiB)};
  machine::Look look = look_at({full});
  lease::Waiter waiter;
  waiter.wish = {.need = 10_GiB, .cards = {full.uuid}};
  look.leases.waiting = {waiter};
  watch::JobStatus job{.pid = 50, .start_ticks = 1000, .what = "train gpt-tiny", .step = 6};
  EXPECT_THAT(picture_of(look, {job}, proc.table()).advice, HasSubstr("PID 50 (orphan)"))
      << "it has published nothing for long";
  job.updated = std::chrono::system_clock::now();
  EXPECT_THAT(picture_of(look, {job}, proc.table()).advice, Not(HasSubstr("press e")));
}

TEST(TopPicture, LeavesTheAgesOfCardsToTheScreen) {
  machine::Look look = look_at({card(0)});
  gpu::Machine old = look.machine;
  old.cards[0].sampled = Clock::now() - std::chrono::minutes(1);
  old.cards[0].trouble = "GPU is lost";
  look.warnings = watch::data_warnings(old);
  ASSERT_EQ(look.warnings.size(), 2U);
  EXPECT_THAT(picture_of(std::move(look), {}).warnings, ElementsAre("GPU 0: GPU is lost"));
}

TEST(TopPicture, AdvisesWithTheProgramsNameInsteadOfItsFolder) {
  gpu::Card idle = card(0, 20_GiB);
  idle.utilization = 0;
  idle.processes = {process(7, 20_GiB, "/opt/headroom-0.1.0/a/long/folder/bin/train a/b.json")};
  EXPECT_THAT(picture_of(look_at({idle}), {}).advice, HasSubstr(" (train a/b.json) holds memory"));
}

TEST(TopPicture, SaysTheMachinesAdviceOtherwise) {
  gpu::Card busy = card(0, 20_GiB);
  busy.utilization = 90;
  busy.processes = {process(7, 20_GiB)};
  EXPECT_EQ(picture_of(look_at({busy, card(1)}), {}).advice, "GPU 1 is idle: 24.00 GiB free");
}

}  // namespace
}  // namespace headroom::cli
