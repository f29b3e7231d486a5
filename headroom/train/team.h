// The ranks of a step that trains on several cards: replicas of a model, stages of a model, or
// replicas of such stages. Each has its optimizer.
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
// A model that no card holds is cut into stages, each a module of its own with some of the layers:
//
//   team.stages = 2;
//   team.ranks.push_back({*front, *its_optimizer, {.part = [=](const auto& rows, const auto&) {
//     return train::Tensors{front->forward(rows[0])};
//   }}});
//   team.ranks.push_back({*back, *its_optimizer, {.part = [=](const auto& rows, const auto& given) {
//     return train::Tensors{torch::cross_entropy(back->forward(given[0]), rows[1])};
//   }}});
//
// The stages work at the same time, on different parts of a batch: plan/pipeline.h. So a plan
// of several parts for a batch is faster than one of a single part. The result is that of the whole
// model with the same parts, to the bit.
//
// Each rank has a thread (parallel/rank_threads.h), and its function runs there: it uses and
// changes the rank's own objects, and draws random numbers on the rank's device. Replicas begin
// with equal values, and keep them.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "headroom/optim/optimizer.h"
#include "headroom/plan/pipeline.h"
#include "headroom/train/objective.h"

namespace headroom::train {

struct Rank {
  torch::nn::Module& module;
  optim::Optimizer& optimizer;
  Objective objective;
};

// A weight that two stages of a replica use, such as an embedding that is also the head. The
// later stage has a copy that its optimizer does not train: it adds its gradient to that of the
// weight, and has the new values after each step.
struct Tie {
  at::Tensor weight, copy;
};

struct Team {
  std::vector<Rank> ranks = {};  // the stages of replica 0 in their order, then those of replica 1
  int stages = 1;
  plan::Pipeline pipeline = plan::Pipeline::one_by_one;
  std::vector<Tie> ties = {};  // in the same order on all replicas
};

}  // namespace headroom::train
