// A training run: steps that cannot be lost (step.h), evaluation, checkpoints, and a record of what
// happened, around any module, loss and loader.
//
//   train::Trainer trainer(*net, *optimizer, {.loss = loss_of}, batches,
//                          {.epochs = 3, .out = "run"});
//   const train::Trained done = trainer.run();
//   say(done.loss);
//
// With `out` the run writes there, and with `resume` it goes on after the newest sound checkpoint,
// with the same losses. Without one, or without `resume`, it moves an earlier run's files to
// out/earlier-1, and so on, as soon as it has committed a step. It touches nothing that no run made
// (base/run_folder.h).
//
//   out/checkpoint-00000100/   everything that a run needs (checkpoint.h); the last `keep_last`
//   out/best/checkpoint-.../   that of the best evaluation
//   out/metrics.jsonl          a line a step and an evaluation
//   out/plan_schedule.jsonl    the plan of each step, which `plan_schedule` of another run obeys
//   out/events.out.tfevents... the figures for TensorBoard
//
// A failure other than an out-of-memory is not retried: run() saves a checkpoint of the last
// committed step and throws it. So is an out-of-memory that no plan cured; oom_report.h explains
// it. A checkpoint that cannot be written does not end the run: see Trained::not_saved.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/base/run_folder.h"
#include "headroom/train/batches.h"
#include "headroom/train/checkpoint.h"
#include "headroom/train/evaluation.h"
#include "headroom/train/event.h"
#include "headroom/train/objective.h"
#include "headroom/train/progress.h"
#include "headroom/train/step.h"

namespace headroom::train {

// Callbacks during a run. All optional; a function that throws ends the run.
struct TrainerListener {
  std::function<void(const Progress&)> on_step = {};
  std::function<void(const Event&)> on_event = {};
  std::function<void(const Evaluated&, std::int64_t step)> on_evaluation = {};
  // Memory at the start, at each epoch and when no plan is left, and growth of live memory.
  std::function<void(std::string_view line)> on_line = {};
  std::function<bool()> should_stop = {};  // asked after each step
  std::function<bool()> should_save = {};  // likewise, for a checkpoint now
};

struct TrainerOptions {
  StepOptions step = {};
  std::int64_t epochs = 1;
  std::int64_t steps = 0;           // ends after this many, whatever `epochs` says; 0: by epochs
  std::int64_t evaluate_every = 0;  // steps; 0: after each epoch
  std::int64_t patience = 0;  // ends after this many evaluations without a better one; 0: never
  EvaluationOptions evaluation = {};
  std::filesystem::path out = {};  // with an empty path nothing is written
  bool resume = false;
  std::filesystem::path resume_from = {};  // read by `resume` if `out` is empty, for evaluate()
  std::int64_t save_every = 0;             // steps; 0: only at the end
  int keep_last = 2;
  // Obeyed instead of the ladder's foresight, as far as it goes. An empty path means none.
  std::filesystem::path plan_schedule = {};
  bool clear_memory_on_start = true;
  // Every this many steps: if more than this share of the card is in use, by anyone, and others use
  // more of it than at the last time, the cache goes back to the driver; if there is none to speak
  // of, the micro-batch gets smaller.
  std::int64_t check_memory_every = 5;
  double emergency_clean_above = 0.9;
  std::int64_t clear_cache_every = 0;  // steps; 0: never. Costs time and helps only neighbours.
  TrainerListener listener = {};
};

struct Trained {
  std::int64_t steps = 0, rows = 0;  // of all, with those before a resume
  double loss = 0;                   // of the last step
  std::optional<Evaluated> evaluation, best;
  std::vector<Event> events;                 // since this start
  bool is_stopped = false;                   // because it was asked to
  bool is_early = false;                     // because evaluations got no better
  std::optional<std::int64_t> resumed_from;  // step
  std::string not_saved;  // why the last step has no checkpoint; "" if it has one, or there is no
                          // `out`
};

class Trainer {
 public:
  // Module and optimizer must live as long as the trainer. `evaluation` may be empty.
  Trainer(torch::nn::Module& module, optim::Optimizer& optimizer, Objective objective,
          Batches batches, TrainerOptions options = {}, std::optional<Batches> evaluation = {});
  // On several cards. A run that is resumed may have another team: other numbers of replicas and
  // stages, or one card.
  Trainer(const Team& team, Batches batches, TrainerOptions options = {},
          std::optional<Batches> evaluation = {});
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // Takes `out` for this run, prices the plans and loads a checkpoint, if requested; run() does it
  // if it was not called. std::nullopt if no checkpoint was loaded. Throws BusyError if another run
  // writes in `out`.
  std::optional<FoundCheckpoint> prepare();
  [[nodiscard]] Trained run();
  // The result so far, as run() would return it now: for a run that threw.
  [[nodiscard]] const Trained& so_far() const;
  // Evaluates as run() does; trains nothing.
  [[nodiscard]] Evaluated evaluate();
  [[nodiscard]] Step& step();
  // `out`, for further files of the run. No other run writes there before run() has ended and this
  // pointer is gone. Throws UsageError without `out`, and before prepare().
  [[nodiscard]] std::shared_ptr<RunFolder> folder();
  // Puts the weights of the best evaluation into the module and returns its step; std::nullopt if
  // there is no sound checkpoint of it. The optimizer keeps its states: train no further.
  std::optional<std::int64_t> load_best_weights();

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace headroom::train
