// The team of a published model on several cards: replicas, parts of it (models::Settings::part),
// or replicas of parts.
//
//   std::vector<std::shared_ptr<models::Model>> models;     // by rank (parallel/layout.h)
//   std::vector<std::unique_ptr<optim::Optimizer>> optimizers;
//   for (std::size_t rank = 0; rank < models.size(); ++rank)
//     optimizers.push_back(optim::make_adamw(train::own_parameters(models, stages, rank), ...));
//   train::Step step(train::team_of(models, optimizers, stages));
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "headroom/models/model.h"
#include "headroom/train/model_objective.h"
#include "headroom/train/team.h"

namespace headroom::train {

using RankModels = std::vector<std::shared_ptr<models::Model>>;

// The parameters of a rank that require gradients, for its optimizer: without the copies of weights
// that an earlier stage has under the same name.
[[nodiscard]] Tensors own_parameters(const RankModels& models, int stages, std::size_t rank);

// Copies are tied to their weights.
[[nodiscard]] Team team_of(const RankModels& models,
                           const std::vector<std::unique_ptr<optim::Optimizer>>& optimizers,
                           int stages, plan::Pipeline pipeline = plan::Pipeline::one_by_one,
                           const ModelObjectiveOptions& options = {});

// The parts of a model of so many layers, as equal as they can be, the larger ones in the middle,
// where there is neither embedding nor head.
[[nodiscard]] std::vector<models::Part> even_parts(std::int64_t layers, int stages);
// The parts with these numbers of layers. Throws UsageError unless they have all layers.
[[nodiscard]] std::vector<models::Part> parts_of(const std::vector<std::int64_t>& counts,
                                                 std::int64_t layers);

}  // namespace headroom::train
