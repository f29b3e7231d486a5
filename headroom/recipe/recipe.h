// The parts of `headroom train`, for your own loop: a model with its weights, what of it is
// trained, the optimizer, the data and the settings of a step, all from the keys of a training.
//
//   const recipe::Recipe recipe = recipe::make({"model=lora", "dataset=flowers102"}, {device});
//   train::Step step(recipe.team, recipe.step);
//   for (int i = 0; i < 10; ++i) say(step.run(recipe.batches.next()).loss());
//   recipe::save(recipe, "adapter");   // recipe/result.h
//
// The weights are those of `headroom train` with these keys after as many steps, to the bit. With
// replicas=2 stages=2 there are four devices, in the order of parallel/layout.h.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/base/bytes.h"
#include "headroom/config/training.h"
#include "headroom/models/model.h"
#include "headroom/nn/lora.h"
#include "headroom/optim/optimizer.h"
#include "headroom/recipe/data.h"
#include "headroom/train/batches.h"
#include "headroom/train/model_team.h"
#include "headroom/train/step_options.h"
#include "headroom/train/team.h"

namespace headroom::recipe {

// A model that is ready to be trained: on one device, or replicas and stages of it on several.
struct Model {
  train::RankModels ranks;                        // the model, or a part of it, of each rank
  std::vector<std::optional<nn::Lora>> adapters;  // likewise
  std::vector<std::unique_ptr<optim::Optimizer>> optimizers;
  int stages = 1;
  std::string words;           // "llama, 8.03 B parameters, 3.4 M of them trained"
  std::string quantised = {};  // ModelOptions::quantised, a technique that all its plans need

  // The whole model, or its stages of the first replica.
  [[nodiscard]] train::RankModels first_replica() const;
};

struct ModelOptions {
  std::int64_t outputs = 0;  // classes or vocabulary tokens in the data; 0 if not known
  // False for a run that is resumed: its weights come from a checkpoint.
  bool reads_weights = true;
  // The rung to build with under quantize=auto, such as "quantize_8bit"; empty: in full.
  std::string quantised = {};
  std::function<void(std::string_view)> say = {};     // hears a line at each milestone
  std::function<void(c10::Device)> before_rank = {};  // hears where the next rank is made
};

// Whether the training's model has frozen linear layers, which may be stored in fewer bits.
[[nodiscard]] bool can_quantise(const config::Training& training, std::int64_t outputs);

// Sets the seed and makes the model, a rank on each device. Ranks draw different random numbers
// while they train. Throws InputError for weights that are missing, and UsageError unless there are
// as many devices as Training::sharing has cards.
[[nodiscard]] Model model_of(const config::Training& training,
                             const std::vector<c10::Device>& devices,
                             const ModelOptions& options = {});

// One stage of the training's model, alone and without values, for dry runs (train/stage_alone.h).
struct StageModel {
  std::shared_ptr<models::Model> model;
  std::optional<nn::Lora> adapters;
  std::unique_ptr<optim::Optimizer> optimizer;
};
// `outputs`: as in ModelOptions. `copies`: its weights that an earlier stage trains, by name.
[[nodiscard]] StageModel stage_of(const config::Training& training, std::int64_t outputs,
                                  const std::optional<models::Part>& part,
                                  const std::set<std::string>& copies);

// The memory that stays of a rank: parameters, buffers, gradients and optimizer states.
[[nodiscard]] Bytes resident_of(models::Model& model, const optim::Optimizer& optimizer);

// How many steps the training has: its epochs, or `steps` if that is less.
[[nodiscard]] std::int64_t steps_of(const config::Resolved& config, const data::Loader& loader);
// Settings of a step in a training of this many steps.
[[nodiscard]] train::StepOptions step_options_of(const config::Training& training,
                                                 std::int64_t steps);
// The model's team (train/team.h), with the objective of its task. The model must outlive it.
[[nodiscard]] train::Team team_of(const config::Training& training, const Model& model);

// All of it at once.
struct Recipe {
  config::Training training;
  Data data;
  Model model;
  train::Team team;
  train::Batches batches;
  std::int64_t steps = 0;  // of the whole training
  train::StepOptions step;
};

[[nodiscard]] Recipe make(const config::Training& training,
                          const std::vector<c10::Device>& devices);
// `settings`: "key=value", as on the command line.
[[nodiscard]] Recipe make(const std::vector<std::string>& settings,
                          const std::vector<c10::Device>& devices);

}  // namespace headroom::recipe
