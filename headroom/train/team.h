// The ranks of a step that trains on several cards: replicas of a model, each with its optimizer
// and its loss.
//
//   parallel::Replicas<Net> net(devices, [] { return Net(); });
//   std::vector<std::unique_ptr<optim::Optimizer>> optimizers;
//   train::Team team;
//   for (Net& one : net) {
//     optimizers.push_back(
//         optim::make_adamw(one->parameters(), {.form = optim::OptimizerForm::fused}));
//     team.ranks.push_back({*one, *optimizers.back(), {.loss = [one](const train::Tensors& rows) {
//       return torch::cross_entropy(one->forward(rows[0]), rows[1]);
//     }}});
//   }
//   train::Step step(team);
//   step.run({batch.data, batch.target});       // as with one card
//
// Each rank has a thread (parallel/rank_threads.h), and its loss runs there: it uses and changes
// the rank's own objects, and draws random numbers on the rank's device. Replicas begin with equal
// values, and keep them.
#pragma once

#include <vector>

#include "headroom/optim/optimizer.h"
#include "headroom/train/objective.h"

namespace headroom::train {

struct Rank {
  torch::nn::Module& module;
  optim::Optimizer& optimizer;
  Objective objective;
};

struct Team {
  std::vector<Rank> ranks;
};

}  // namespace headroom::train
