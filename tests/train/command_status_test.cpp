// What `headroom train` publishes of itself while it runs.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <set>

#include "headroom/watch/job_status.h"
#include "tests/train/command_world.h"

namespace headroom::testing {
namespace {

TEST(TrainStatus, IsPublishedWhileItRunsAndGoneAfterwards) {
  const TrainingWorld world;
  const auto folder = world.state() / "status";
  const auto running = world.start_training(
      world.on_tokens("out", {"steps=1000000", "--inject", "oom@step=2:phase=backward"}));
  std::vector<watch::JobStatus> jobs;
  ASSERT_TRUE(running->until([&](const Running&) {
    jobs = watch::job_statuses(folder);
    return !jobs.empty() && jobs[0].ooms_survived == 1;
  })) << running->err();
  EXPECT_EQ(jobs[0].pid, running->pid());
  EXPECT_EQ(jobs[0].what.substr(0, 6), "train ");
  ASSERT_EQ(jobs[0].gpus.size(), 1U);
  EXPECT_EQ(jobs[0].gpus[0].substr(0, 12), "GPU-73696d00");
  EXPECT_GE(jobs[0].step, 2);
  EXPECT_EQ(jobs[0].steps, 1000000);
  EXPECT_TRUE(jobs[0].loss && jobs[0].rows_per_s);
  EXPECT_EQ(jobs[0].micro_batch, jobs[0].batch);
  running->signal(SIGTERM);
  (void)running->wait();
  EXPECT_TRUE(watch::job_statuses(folder).empty());
  EXPECT_TRUE(std::filesystem::is_empty(folder));
}

TEST(TrainStatus, NamesAllCardsOfATeam) {
  const TrainingWorld world;
  const auto running =
      world.start_training({"model=gpt-tiny", "replicas=2", "stages=2", "steps=1000000",
                            "out=" + world.path("out"), "--gpus", "sim:4x64MiB"});
  std::vector<watch::JobStatus> jobs;
  ASSERT_TRUE(running->until([&](const Running&) {
    jobs = watch::job_statuses(world.state() / "status");
    return !jobs.empty() && jobs[0].step > 0;
  })) << running->err();
  EXPECT_EQ(std::set(jobs[0].gpus.begin(), jobs[0].gpus.end()).size(), 4U);
  running->signal(SIGTERM);
  (void)running->wait();
}

// Where the folder should be lies a file.
TEST(TrainStatus, WithoutAFolderForItTheRunIsTheSame) {
  const TrainingWorld world;
  const Arguments arguments = world.on_tokens("out", {"steps=3"});
  const std::string expected = weights_of(world.train(arguments));
  std::filesystem::remove_all(world.state() / "status");
  world.folder().write("state/status", "in the way");
  EXPECT_EQ(weights_of(world.train(arguments)), expected);
}

}  // namespace
}  // namespace headroom::testing
