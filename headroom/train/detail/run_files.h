// The files that a run adds a line to at each step: metrics, plans, and TensorBoard's.
//
// A run that goes on after a checkpoint removes the lines of later steps, which it does again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>

#include "headroom/base/descriptor.h"
#include "headroom/train/evaluation.h"
#include "headroom/train/plan.h"
#include "headroom/train/tensorboard.h"
#include "headroom/train/trainer.h"
#include "headroom/watch/rotating_file.h"

namespace headroom::train::detail {

// A new run must not find an earlier one's checkpoints when it is resumed, nor lose them: moves all
// that a run has left in this folder to a folder earlier-N in it, which it returns. Nothing: there
// was none. Throws WriteError.
[[nodiscard]] std::optional<std::filesystem::path> set_aside(const std::filesystem::path& out);
[[nodiscard]] bool has_a_run(const std::filesystem::path& out);

// The folder of a run, which no other run may write meanwhile. Throws BusyError if another does,
// and WriteError if the folder cannot be made.
class RunFolder {
 public:
  explicit RunFolder(const std::filesystem::path& folder);

 private:
  Descriptor open_;  // and locked
};

class RunFiles {
 public:
  // After `done` steps. Throws WriteError, as all functions do.
  RunFiles(const std::filesystem::path& folder, std::int64_t done);

  void step(const Progress& progress, Json memory);
  // With parts of at most `micro_batch` rows; 0: each batch at once.
  void evaluation(const Evaluated& result, std::int64_t step, std::int64_t micro_batch);

 private:
  std::filesystem::path metrics_path_, plans_path_;
  std::unique_ptr<watch::RotatingFile> metrics_, plans_;
  std::unique_ptr<EventFile> board_;
};

// A plan for each step, from a file that a run has written. Throws InputError.
class PlanSchedule {
 public:
  explicit PlanSchedule(const std::filesystem::path& file);
  // Of the last line for this step or an earlier one.
  [[nodiscard]] Plan at(std::int64_t step) const;
  // The micro-batch of the evaluation after this step, or of the last one before it. Nothing: the
  // file has none.
  [[nodiscard]] std::optional<std::int64_t> evaluation_at(std::int64_t step) const;

 private:
  std::map<std::int64_t, Plan> plans_, evaluations_;
};

}  // namespace headroom::train::detail
