// The status of a running training of Headroom: its step, loss and plan, in one small file a
// process in `status/` of the state folder (docs/formats/job-status.md).
//
// The trainer's process writes its file and removes it at its end; the file of a process that was
// killed is removed by the next reader. Only its user may read it.
//
//   JobStatusPublisher publisher;                  // in the training
//   publisher.publish({.what = "train gpt2", .step = 17, .steps = 2000});
//
//   for (const JobStatus& job : job_statuses())    // in another process
//     say(job.pid, job.step);
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "headroom/base/process.h"
#include "headroom/base/time.h"

namespace headroom::watch {

// Empty if not known, or not yet.
struct JobStatus {
  pid_t pid = 0;                                   // with `start_ticks` the identity of the process
  long long start_ticks = 0;                       // field 22 of /proc/PID/stat
  std::string what = {};                           // "train gpt2"
  std::vector<std::string> gpus = {};              // UUIDs; an empty list means on the CPU
  std::optional<long long> step = {}, steps = {};  // the last committed one, and of how many
  std::optional<double> loss = {};                 // of that step; never NaN or infinite
  std::optional<long long> micro_batch = {}, batch = {};  // rows in a forward pass, and in a step
  std::string plan = {};                                  // "micro-batch 8, checkpointing"
  std::uint64_t ooms_survived = 0;
  std::optional<double> rows_per_s = {};
  WallTime updated = {};
};

// `status` in the state folder.
[[nodiscard]] std::filesystem::path status_folder();

// Publishes the status of this process until its end. Nothing here throws: a training does not stop
// because a full disk takes no status. Threads: one at a time.
class JobStatusPublisher {
 public:
  // Removes the files of processes that have ended.
  explicit JobStatusPublisher(const std::filesystem::path& folder = status_folder());
  ~JobStatusPublisher();  // removes the file
  JobStatusPublisher(const JobStatusPublisher&) = delete;
  JobStatusPublisher& operator=(const JobStatusPublisher&) = delete;

  // Writes the file if the last write is a second old, or if this status differs from the last
  // written one in more than its progress: in its plan, its cards or the OOMs that it survived, or
  // by the last step.
  // Fills in the process and the time. A forked child publishes nothing.
  void publish(JobStatus status, Clock::time_point now = Clock::now()) noexcept;

 private:
  ProcessIdentity self_;
  std::filesystem::path file_;
  std::optional<Clock::time_point> written_;
  JobStatus last_;
};

// The statuses of living processes, by process number. Removes the files of processes that have
// ended; ignores damaged files, and those of other machines and containers that share the folder,
// and removes them when they are a day old.
[[nodiscard]] std::vector<JobStatus> job_statuses(
    const std::filesystem::path& folder = status_folder(),
    const ProcessTable& processes = ProcessTable());

}  // namespace headroom::watch
