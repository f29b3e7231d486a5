// The run behind a Trainer. trainer.cpp has its steps, trainer_folder.cpp its folder: checkpoints,
// records, and what is resumed from them.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/base/run_folder.h"
#include "headroom/base/time.h"
#include "headroom/memory/memory_statistics.h"
#include "headroom/train/detail/leak_watch.h"
#include "headroom/train/detail/neighbour_watch.h"
#include "headroom/train/detail/run_checkpoints.h"
#include "headroom/train/detail/run_files.h"
#include "headroom/train/trainer.h"

namespace headroom::train {

class Trainer::State {
 public:
  State(const Team& team, Batches batches, TrainerOptions given, std::optional<Batches> evaluation);

  std::optional<FoundCheckpoint> prepare();
  Trained run();
  [[nodiscard]] const Trained& so_far() const { return training_; }
  Evaluated evaluate();
  std::shared_ptr<RunFolder> folder();
  std::optional<std::int64_t> load_best_weights();
  Step step;

 private:
  static StepOptions heard(TrainerOptions& options, State& state);
  // Of each device whose memory is counted, with its rank.
  [[nodiscard]] std::map<std::size_t, memory::GpuMemoryStats> memory_now() const;
  [[nodiscard]] std::string place() const;
  void restore(const FoundCheckpoint& found);
  void one_step();
  [[nodiscard]] Tensors next_batch();
  void after_step(const Committed& done, double seconds);
  [[nodiscard]] double learning_rate();
  void watch_memory(std::int64_t number);
  void trim(const memory::GpuMemoryStats& now, std::int64_t number);
  void shrink();
  [[nodiscard]] std::int64_t evaluation_rows() const;
  void evaluate_and_keep_best();
  void begin_files();
  void take_folder();
  void save();
  void save_at_the_end();
  void save_what_is_left();
  void say(std::string_view line) const;
  void say_memory(const std::string& prefix) const;
  void say_epoch(std::int64_t epoch);
  void tell(Event event);

  TrainerOptions options_;
  Batches batches_;
  std::optional<Batches> evaluation_batches_;
  std::optional<Evaluation> evaluation_;
  std::optional<Tensors> first_;  // priced, not yet trained
  std::string position_;          // of the data, after the last committed step
  std::string evaluation_start_;
  std::shared_ptr<RunFolder> folder_;
  std::optional<detail::RunCheckpoints> checkpoints_;
  std::optional<detail::RunFiles> files_;
  std::optional<detail::PlanSchedule> schedule_;
  std::vector<detail::LeakWatch> leaks_;  // by rank
  Trained training_;
  std::int64_t steps_in_all_ = 0, begun_ = 0, worse_ = 0;
  std::vector<detail::NeighbourWatch> neighbours_;  // by rank
  Clock::time_point since_{};                       // when the step began, its data included
  std::optional<Clock::time_point> said_epoch_;
  double rows_per_s_ = 0;
  std::int64_t rows_ = 0;  // of the first batch
  bool is_prepared_ = false, said_not_finite_ = false;
};

}  // namespace headroom::train
