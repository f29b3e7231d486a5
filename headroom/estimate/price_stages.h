// The prices of the stages of a training, by dry runs of each alone: what plan/model_pricer.h asks
// for.
//
//   StagePrices prices(training, cards, settings);
//   prices.of(stage).reserved;
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "headroom/allocator/settings.h"
#include "headroom/config/training.h"
#include "headroom/dryrun/step_run.h"
#include "headroom/gpu/simulated.h"
#include "headroom/plan/price_book.h"
#include "headroom/plan/pricer.h"
#include "headroom/recipe/recipe.h"
#include "headroom/train/objective.h"
#include "headroom/train/stage_alone.h"
#include "headroom/train/step_options.h"

namespace headroom::estimate {

class StagePrices {
 public:
  // The training's data are made up. `cards`: one with each chip that stages may lie on; a price is
  // that of the one that needs the most.
  StagePrices(config::Training training, std::vector<gpu::SimulatedCard> cards,
              const allocator::Settings& settings);

  [[nodiscard]] plan::StagePrice of(const plan::Stage& stage);

 private:
  using Given = std::vector<at::Tensor>;
  // A stage alone, for dry runs.
  struct Alone {
    recipe::StageModel made;
    std::unique_ptr<train::StageAlone> stage;
  };
  [[nodiscard]] Alone alone(const plan::Stage& stage);
  // The requests of its step in these parts, on each card.
  [[nodiscard]] std::vector<dryrun::Requests> run(const Alone& alone, const plan::Stage& stage);
  // The same from a dry run of four parts, which serves all numbers of parts; none if it cannot.
  struct InFour {
    std::vector<train::FourParts> on;  // each card
    Bytes resident;
  };
  [[nodiscard]] const InFour& in_four(plan::Stage stage);
  // What a stage is run with.
  [[nodiscard]] train::Tensors rows_of(const plan::Stage& stage) const;
  [[nodiscard]] train::Plan plan_of(const plan::Stage& stage) const;
  [[nodiscard]] std::optional<std::vector<Given>> given(const plan::Stage& stage);
  // What the stage before this layer gives for a part of so many rows.
  [[nodiscard]] const Given& given(std::int64_t layer, std::int64_t rows);
  // The stage's weights that later ones have copies of, and its copies, by name.
  struct Ties {
    std::set<std::string> copied, copies;
  };
  [[nodiscard]] Ties ties_of(const plan::Stage& stage) const;

  config::Training training_;
  std::vector<gpu::SimulatedCard> cards_;
  allocator::Settings settings_;
  plan::Pipeline pipeline_;
  train::StepOptions options_;
  train::Tensors row_;  // of the data
  std::int64_t outputs_ = 0;
  std::vector<int> layer_kinds_;
  std::int64_t layers_ = 0;
  std::vector<std::set<std::string>> names_;  // of each layer's parameters
  std::map<std::pair<std::int64_t, std::int64_t>, Given> given_;
  std::map<plan::Stage, InFour> in_four_;
};

}  // namespace headroom::estimate
