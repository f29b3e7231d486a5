// Measures a model on batches that it does not train on, with a micro-batch of its own: what fits
// is found as in training, by running, and a batch that ran out of memory is measured again in
// smaller parts.
//
//   Evaluation evaluation(*net, objective, {.micro_batch = 64});
//   const Evaluated result = evaluation.run(batches);
//   say(result.loss);
// If the parts get smaller on the way, the evaluation begins again: all of its batches are measured
// alike, and equal parts give equal losses.
//
// The module is in evaluation mode meanwhile; its values and the random numbers of training stay as
// they are after each failure. Losses are means over all terms of all batches (objective.h), so
// they do not depend on the parts.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "headroom/base/first_failure.h"
#include "headroom/parallel/rank_threads.h"
#include "headroom/train/batches.h"
#include "headroom/train/event.h"
#include "headroom/train/objective.h"
#include "headroom/train/team.h"

namespace torch::nn {
class Module;
}

namespace headroom::train {

struct Prediction {
  std::int64_t label = 0;  // the class of the highest probability
  double probability = 0;
};

struct Evaluated {
  double loss = 0;
  std::optional<double> accuracy;  // of rows, where the objective counts right answers
  std::int64_t rows = 0;
  std::vector<Prediction> predictions = {};  // of each row, in order, if requested
};
// Higher accuracy; where it is not counted, or equal, a lower loss.
[[nodiscard]] bool is_better(const Evaluated& one, const Evaluated& other);
[[nodiscard]] Json to_json(const Evaluated& result);
[[nodiscard]] Evaluated evaluated_from(const Json& document);

struct EvaluationOptions {
  std::int64_t micro_batch = 0;  // rows in a forward pass; 0: a whole batch
  std::optional<c10::ScalarType> autocast = {};
  bool predicts = false;  // also the model's predictions, where the objective has logits of classes
  std::function<void(const Event&)> on_event = {};
};

class Evaluation {
 public:
  Evaluation(torch::nn::Module& module, Objective objective, EvaluationOptions options = {});
  // Of a team (team.h): replicas divide the rows, stages hand their tensors on. A micro-batch is
  // that of a replica.
  explicit Evaluation(const Team& team, EvaluationOptions options = {});
  ~Evaluation();
  Evaluation(const Evaluation&) = delete;
  Evaluation& operator=(const Evaluation&) = delete;

  // One epoch of the batches, from their beginning. `step` is for events: the training step before.
  // Rethrows a failure; an out-of-memory only if a single row does not fit.
  [[nodiscard]] Evaluated run(const Batches& batches, std::int64_t step = 0);
  [[nodiscard]] std::int64_t micro_batch() const { return options_.micro_batch; }
  // From the next run on; less where a larger one has failed.
  void set_micro_batch(std::int64_t rows);

 private:
  struct Sums {
    double loss = 0, terms = 0, right = 0;
    bool counts_right = true;
    std::int64_t rows = 0;
    std::vector<Prediction> predictions;
    void add(const Sums& other);
  };
  struct Rank;
  [[nodiscard]] Sums measured(const Tensors& batch, std::int64_t step);
  [[nodiscard]] Sums attempt(const Tensors& batch);
  [[nodiscard]] Sums of_rank(Rank& rank, const Tensors& batch, FirstFailure& failure) const;
  void of_part(Rank& rank, const Tensors& rows, const Tensors& given, Tensors& outputs,
               Sums& sums) const;
  void empty_caches() const;
  void tell(Event event, std::int64_t from, std::int64_t to) const;

  std::vector<std::unique_ptr<Rank>> ranks_;
  std::unique_ptr<parallel::RankThreads> threads_;
  EvaluationOptions options_;
  std::int64_t most_ = 0;   // rows, after larger parts have failed; 0: none have
  std::size_t failed_ = 0;  // rank
};

}  // namespace headroom::train
