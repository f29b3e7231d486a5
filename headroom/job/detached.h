// A job that goes on without its terminal (`headroom run --detach`): a process in its own session
// whose output goes to a file, and its record (docs/formats/detached-job.md).
//
//   if (auto id = detach(command)) return say(*id);     // in the parent
//   note_end(run(command));                 // in the detached process
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "headroom/base/process.h"
#include "headroom/base/time.h"

namespace headroom::job {

struct DetachedJob {
  std::string id;
  ProcessIdentity supervisor;
  std::vector<std::string> command;
  WallTime started;
  std::optional<int> exit_code;  // std::nullopt if it still runs or was killed
  std::filesystem::path output;

  [[nodiscard]] bool is_running() const;
};

// The folder of the records, one folder a job, in the state folder.
[[nodiscard]] std::filesystem::path detached_jobs_dir();

// Forks. The parent returns the job once the child has left the terminal. The child returns nothing
// and goes on without input, with its output in the job's file. Make no thread before. Throws
// WriteError if the record cannot be written, BusyError if no process can be made.
[[nodiscard]] std::optional<DetachedJob> detach(const std::vector<std::string>& command);

// In the child: records its exit code. Does nothing in a process that was not detached.
void note_end(int exit_code);

// Throws UsageError for an unknown ID.
[[nodiscard]] DetachedJob detached_job(const std::string& id);

// The oldest first.
[[nodiscard]] std::vector<DetachedJob> detached_jobs();

}  // namespace headroom::job
