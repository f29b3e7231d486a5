// What a training publishes of itself, and what the readers make of the files.

#include "headroom/watch/job_status.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "headroom/base/file.h"
#include "headroom/base/json.h"
#include "tests/gpu/fixtures/processes.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/garbage.h"
#include "tests/support/temporary_folder.h"

namespace headroom::watch {
namespace {

using gpu::fixtures::Child;

class JobStatuses : public ::testing::Test {
 protected:
  [[nodiscard]] std::filesystem::path folder() const { return folder_.path() / "status"; }
  [[nodiscard]] static std::string name_of(const ProcessIdentity& process) {
    return std::to_string(process.pid) + "-" + std::to_string(process.start_ticks) + ".json";
  }
  // A file as `process` would have published it, changed by `change`.
  template <typename Change>
  std::filesystem::path published_by(const ProcessIdentity& process, Change change) const {
    JobStatusPublisher publisher(folder());
    publisher.publish({.what = "train gpt2"});
    Json json = parse_json(read_file(folder() / name_of(this_process())).value(), "status");
    json["pid"] = process.pid;
    json["start_ticks"] = process.start_ticks;
    change(json);
    return folder_.write("status/" + name_of(process), to_line(json));
  }

  const Clock::time_point begin_ = Clock::now();
  testing::TemporaryFolder folder_;
};

TEST_F(JobStatuses, ComeBackAsTheyWerePublished) {
  JobStatusPublisher publisher(folder());
  publisher.publish({.what = "train gpt2",
                     .gpus = {"GPU-1", "GPU-2"},
                     .step = 17,
                     .steps = 2000,
                     .loss = 2.5,
                     .micro_batch = 4,
                     .batch = 32,
                     .plan = "micro-batch 4, checkpointing",
                     .ooms_survived = 3,
                     .rows_per_s = 81.5});
  const auto jobs = job_statuses(folder());
  ASSERT_EQ(jobs.size(), 1U);
  const JobStatus& job = jobs[0];
  EXPECT_EQ((ProcessIdentity{job.pid, job.start_ticks}), this_process());
  EXPECT_EQ(job.what, "train gpt2");
  EXPECT_EQ(job.gpus, (std::vector<std::string>{"GPU-1", "GPU-2"}));
  EXPECT_EQ(job.step, 17);
  EXPECT_EQ(job.steps, 2000);
  EXPECT_EQ(job.loss, 2.5);
  EXPECT_EQ(job.micro_batch, 4);
  EXPECT_EQ(job.batch, 32);
  EXPECT_EQ(job.plan, "micro-batch 4, checkpointing");
  EXPECT_EQ(job.ooms_survived, 3U);
  EXPECT_EQ(job.rows_per_s, 81.5);
  EXPECT_LT(std::chrono::system_clock::now() - job.updated, std::chrono::hours(1));
}

TEST_F(JobStatuses, WhatIsNotKnownStaysEmpty) {
  JobStatusPublisher publisher(folder());
  publisher.publish({.what = "train vit-base", .loss = std::nan("")});
  const auto jobs = job_statuses(folder());
  ASSERT_EQ(jobs.size(), 1U);
  EXPECT_FALSE(jobs[0].step || jobs[0].steps || jobs[0].loss || jobs[0].batch);
  EXPECT_FALSE(jobs[0].rows_per_s || jobs[0].micro_batch);
}

TEST_F(JobStatuses, AreGoneWithTheirPublisher) {
  { JobStatusPublisher(folder()).publish({.what = "train gpt2"}); }
  EXPECT_TRUE(job_statuses(folder()).empty());
  EXPECT_TRUE(std::filesystem::is_empty(folder()));
}

// Forty files of killed trainings lay there: only `top` and `clean` removed them.
TEST_F(JobStatuses, OfKilledTrainingsGoWhenTheNextOneBegins) {
  const auto file = published_by({99'999'999, 7}, [](Json&) {});
  ASSERT_TRUE(std::filesystem::exists(file));
  const JobStatusPublisher next(folder());
  EXPECT_FALSE(std::filesystem::exists(file));
}

TEST_F(JobStatuses, AreWrittenOnceASecond) {
  JobStatusPublisher publisher(folder());
  publisher.publish({.step = 1}, begin_);
  publisher.publish({.step = 2}, begin_ + std::chrono::milliseconds(900));
  EXPECT_EQ(job_statuses(folder()).at(0).step, 1);
  publisher.publish({.step = 3}, begin_ + std::chrono::milliseconds(1000));
  EXPECT_EQ(job_statuses(folder()).at(0).step, 3);
}

TEST_F(JobStatuses, TheLastStepIsWrittenAtOnce) {
  JobStatusPublisher publisher(folder());
  publisher.publish({.step = 1, .steps = 3}, begin_);
  publisher.publish({.step = 2, .steps = 3}, begin_ + std::chrono::milliseconds(10));
  EXPECT_EQ(job_statuses(folder()).at(0).step, 1);
  publisher.publish({.step = 3, .steps = 3}, begin_ + std::chrono::milliseconds(20));
  EXPECT_EQ(job_statuses(folder()).at(0).step, 3);
}

TEST_F(JobStatuses, OfStepsThatTakeLongerThanASecondAreAllWritten) {
  JobStatusPublisher publisher(folder());
  for (int step = 1; step <= 4; ++step) {
    publisher.publish({.step = step}, begin_ + step * std::chrono::milliseconds(1500));
    EXPECT_EQ(job_statuses(folder()).at(0).step, step);
  }
}

TEST_F(JobStatuses, CanBeReadByTheirUserOnly) {
  using std::filesystem::perms;
  std::filesystem::create_directory(folder());  // as an earlier version made it
  JobStatusPublisher publisher(folder());
  publisher.publish({.step = 1});
  const auto permissions = [](const std::filesystem::path& path) {
    return std::filesystem::status(path).permissions();
  };
  EXPECT_EQ(permissions(folder()), perms::owner_all);
  EXPECT_EQ(permissions(folder() / name_of(this_process())),
            perms::owner_read | perms::owner_write);
}

TEST_F(JobStatuses, ASurvivedOomAndANewPlanAreWrittenAtOnce) {
  JobStatusPublisher publisher(folder());
  publisher.publish({.step = 1}, begin_);
  publisher.publish({.step = 2, .ooms_survived = 1}, begin_);
  EXPECT_EQ(job_statuses(folder()).at(0).ooms_survived, 1U);
  publisher.publish({.step = 3, .plan = "checkpointing", .ooms_survived = 1}, begin_);
  EXPECT_EQ(job_statuses(folder()).at(0).plan, "checkpointing");
  publisher.publish({.step = 4, .plan = "checkpointing", .ooms_survived = 1}, begin_);
  EXPECT_EQ(job_statuses(folder()).at(0).step, 3);
}

TEST_F(JobStatuses, OfAProcessThatWasKilledAreRemoved) {
  Child child;
  const auto file = published_by(child.identity(), [](Json&) {});
  EXPECT_EQ(job_statuses(folder()).size(), 1U);
  child.end();
  EXPECT_TRUE(job_statuses(folder()).empty());
  EXPECT_FALSE(std::filesystem::exists(file));
}

TEST_F(JobStatuses, OfAReusedProcessNumberAreRemoved) {
  ProcessIdentity earlier = this_process();
  --earlier.start_ticks;
  const auto file = published_by(earlier, [](Json&) {});
  EXPECT_TRUE(job_statuses(folder()).empty());
  EXPECT_FALSE(std::filesystem::exists(file));
}

// A home folder that several machines mount: the process number means nothing here, and the job
// may be alive there.
TEST_F(JobStatuses, OfAnotherMachineAreLeftAloneForADay) {
  const ProcessIdentity there{1, 1};
  const auto file = published_by(there, [](Json& json) { json["boot_id"] = "another"; });
  EXPECT_TRUE(job_statuses(folder()).empty());
  EXPECT_TRUE(std::filesystem::exists(file));
  published_by(there, [](Json& json) {
    json["boot_id"] = "another";
    json["updated_unix_ms"] = json["updated_unix_ms"].get<long long>() - 25LL * 3600 * 1000;
  });
  EXPECT_TRUE(job_statuses(folder()).empty());
  EXPECT_FALSE(std::filesystem::exists(file));
}

TEST_F(JobStatuses, DamagedFilesAreIgnored) {
  const Child child;
  const auto file = published_by(child.identity(), [](Json&) {});
  const std::string right = read_file(file).value();
  std::mt19937 random(17);
  for (int i = 0; i < 300; ++i) {
    const std::string text = testing::mutated(right, right, random, testing::kOfJson);
    std::ofstream(file, std::ios::binary) << text;
    EXPECT_LE(job_statuses(folder()).size(), 1U) << text;
  }
  std::ofstream(file) << "{";
  EXPECT_TRUE(job_statuses(folder()).empty());
  EXPECT_TRUE(std::filesystem::exists(file)) << "its process lives and will write it again";
  folder_.write("status/notes.txt", "not ours");
  folder_.write("status/a-b.json", "not ours");
  EXPECT_TRUE(job_statuses(folder()).empty());
  EXPECT_TRUE(std::filesystem::exists(folder() / "a-b.json"));
}

// It may be of another machine, and of a later version.
TEST_F(JobStatuses, ADamagedFileOfNoProcessIsLeftAloneForADay) {
  Child child;
  const auto file = folder_.write("status/" + name_of(child.identity()), "");
  child.end();
  EXPECT_TRUE(job_statuses(folder()).empty());
  EXPECT_TRUE(std::filesystem::exists(file));
  std::filesystem::last_write_time(
      file, std::filesystem::file_time_type::clock::now() - std::chrono::hours(25));
  EXPECT_TRUE(job_statuses(folder()).empty());
  EXPECT_FALSE(std::filesystem::exists(file));
}

TEST_F(JobStatuses, TextFromFilesHasNoEscapes) {
  const Child child;
  published_by(child.identity(), [](Json& json) { json["what"] = "\x1b[2Jtrain"; });
  EXPECT_EQ(job_statuses(folder()).at(0).what, " [2Jtrain");
}

TEST_F(JobStatuses, AFullDiskHurtsNoTrainingAndLeavesNoHalfFile) {
  JobStatusPublisher publisher(folder());
  publisher.publish({.step = 1}, begin_);
  {
    const testing::FileSizeLimit limit(10);
    publisher.publish({.step = 2}, begin_ + std::chrono::seconds(5));
  }
  EXPECT_EQ(job_statuses(folder()).at(0).step, 1);
  publisher.publish({.step = 3}, begin_ + std::chrono::seconds(10));
  EXPECT_EQ(job_statuses(folder()).at(0).step, 3);
  std::filesystem::directory_iterator files(folder());
  EXPECT_EQ(std::distance(begin(files), end(files)), 1);
}

TEST_F(JobStatuses, AFolderThatCannotBeMadeHurtsNoTraining) {
  JobStatusPublisher publisher("/proc/nowhere/status");
  publisher.publish({.what = "train gpt2"});
  EXPECT_TRUE(job_statuses("/proc/nowhere/status").empty());
}

TEST_F(JobStatuses, AForkedChildLeavesItsParentsFile) {
  auto publisher = std::make_unique<JobStatusPublisher>(folder());
  publisher->publish({.step = 1}, begin_);
  const pid_t child = ::fork();
  if (child == 0) {
    publisher->publish({.step = 2}, begin_ + std::chrono::seconds(5));
    publisher.reset();
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(job_statuses(folder()).size(), 1U);
  EXPECT_EQ(job_statuses(folder())[0].step, 1);
}

}  // namespace
}  // namespace headroom::watch
