// The files that a run adds a line to at each step: metrics, plans, and TensorBoard's.
//
// A run that goes on after a checkpoint takes out the lines of later steps, which it does again;
// metrics.cut.jsonl keeps those of the metrics. On a full disk lines wait in memory for room, and
// TensorBoard's are lost.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "headroom/base/run_folder.h"
#include "headroom/train/evaluation.h"
#include "headroom/train/plan.h"
#include "headroom/train/progress.h"
#include "headroom/train/tensorboard.h"
#include "headroom/watch/rotating_file.h"

namespace headroom::train::detail {

class RunFiles {
 public:
  // After `done` steps. Throws WriteError.
  RunFiles(RunFolder& run, const std::filesystem::path& folder, std::int64_t done);
  ~RunFiles();  // tries again to write the waiting lines

  void step(const Progress& progress, Json memory);
  // With parts of at most `micro_batch` rows; 0: each batch at once.
  void evaluation(const Evaluated& result, std::int64_t step, std::int64_t micro_batch);
  // Throws WriteError if lines still cannot be written; they go on waiting.
  void write_waiting();

 private:
  void show_cards(const Json& cards, std::int64_t step);
  struct Lines {
    std::unique_ptr<watch::RotatingFile> file;
    std::string waiting;
  };
  static void write(Lines& lines);
  static void add(Lines& lines, const Json& line);
  void show();

  Lines metrics_, plans_;
  std::unique_ptr<EventFile> board_;
};

// A plan for each step, from a file that a run has written. Throws InputError.
class PlanSchedule {
 public:
  explicit PlanSchedule(const std::filesystem::path& file);
  // The plan of the last line for this step or an earlier one.
  [[nodiscard]] Plan at(std::int64_t step) const;
  // The micro-batch of the evaluation after this step, or of the last one before it. std::nullopt:
  // the file has none.
  [[nodiscard]] std::optional<std::int64_t> evaluation_at(std::int64_t step) const;

 private:
  std::map<std::int64_t, Plan> plans_, evaluations_;
};

}  // namespace headroom::train::detail
