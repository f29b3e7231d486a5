// `--policy`: a rule of thumb chooses the batch, the variant of a model or the training technique,
// in place of the given ones, and says what it chose and why.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "headroom/gpu/simulated.h"
#include "headroom/model/model_catalogue.h"
#include "headroom/model/run_settings.h"

namespace headroom::plan {

struct Decided {
  std::string model;
  model::Settings settings;
  std::string why;  // "" if there was no decision
  // Of Policy::strategy.
  std::optional<int> replicas = {}, stages = {};
};

// `model` is a name, or with Policy::variant a list "llama-2-13b@40GiB,llama-2-7b" of models with
// the smallest card for each. `gpus` are the cards of one machine; the smallest decides. Throws
// UsageError if the policy needs a card and there is none, or if no variant fits.
[[nodiscard]] Decided decide(const std::string& model, const model::Settings& settings,
                             const std::vector<gpu::SimulatedCard>& gpus);

}  // namespace headroom::plan
