// A job that goes on without its terminal (`headroom run --detach`): a process in a session of its
// own whose output goes to a file, and what is kept of it (docs/formats/detached-job.md).
//
//   if (auto id = detach(command)) return say(*id);     // in the parent
//   note_end(supervise(...).exit_code);                 // in the detached process
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
  std::optional<int> exit_code;  // empty: it runs, or it was killed
  std::filesystem::path output;

  [[nodiscard]] bool is_running() const;
};

// Where they are kept: a folder a job, in the state folder.
[[nodiscard]] std::filesystem::path detached_jobs_dir();

// Forks. The parent returns the job once the child has left the terminal; the child returns nothing
// and goes on with no input and its output in the job's file. Make no thread before. Throws
// WriteError where nothing can be kept, BusyError where no process can be made.
[[nodiscard]] std::optional<DetachedJob> detach(const std::vector<std::string>& command);

// In the child: how it ended. Does nothing in a process that was not detached.
void note_end(int exit_code);

// Throws UsageError for an ID that there is not.
[[nodiscard]] DetachedJob detached_job(const std::string& id);

// The oldest first.
[[nodiscard]] std::vector<DetachedJob> detached_jobs();

}  // namespace headroom::job
