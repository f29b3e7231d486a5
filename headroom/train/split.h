// Trains a torch::nn::Sequential that one card cannot hold, on several: each card has some of its
// modules, one after another.
//
//   torch::nn::Sequential net(...);
//   train::Split split(net, {.devices = {cuda0, cuda1, cuda2}});
//   train::Step step(split.team(
//       [](const Tensors& parameters) {
//         return optim::make_adamw(parameters, {.form = optim::OptimizerForm::fused});
//       },
//       [](const at::Tensor& output, const Tensors& rows) {
//         return torch::cross_entropy(output, rows[1]);
//       }));
//   step.run({images, labels});                // rows[0] goes into the first module
//
// The Sequential's modules are used, not copied: they move to their cards, and its own forward()
// cannot be called while they are there. With `replicas`, replica 0 has the modules themselves and
// the others have clones, which needs classes with a clone() (torch::nn::Cloneable).
//
// Names are those of the whole: stage(1) has "3.weight" if its first module was net[3]. The union
// of named_parameters() over the stages is that of the Sequential.
//
// A model that is no Sequential, or passes several tensors from part to part, needs a Team written
// by hand: team.h.
#pragma once

#include <c10/core/Device.h>
#include <torch/nn/modules/container/sequential.h>

#include <functional>
#include <memory>
#include <vector>

#include "headroom/train/team.h"

namespace headroom::train {

struct SplitOptions {
  std::vector<c10::Device> devices;  // the stages of replica 0 in their order, then of replica 1
  int replicas = 1;
  // Modules of each stage. Empty: such that the largest stage has as few bytes of parameters as
  // possible.
  std::vector<std::size_t> modules = {};
  plan::Pipeline pipeline = plan::Pipeline::one_by_one;
};

class Split {
 public:
  using MakeOptimizer =
      std::function<std::unique_ptr<optim::Optimizer>(const std::vector<at::Tensor>& parameters)>;
  using Loss = std::function<at::Tensor(const at::Tensor& output, const Tensors& rows)>;

  // Throws UsageError for an empty stage, a module that two stages would have, and numbers that do
  // not go together.
  Split(const torch::nn::Sequential& net, const SplitOptions& options);
  ~Split();
  Split(const Split&) = delete;
  Split& operator=(const Split&) = delete;

  // Makes the optimizer of each rank and the team. The Split must live as long as the step.
  [[nodiscard]] Team team(const MakeOptimizer& make_optimizer, const Loss& loss);

  [[nodiscard]] std::size_t ranks() const { return ranks_.size(); }
  [[nodiscard]] torch::nn::Module& stage(std::size_t rank);
  [[nodiscard]] optim::Optimizer& optimizer(std::size_t rank);  // after team()

 private:
  struct Stage;
  struct Ranked {
    std::shared_ptr<Stage> stage;
    std::unique_ptr<optim::Optimizer> optimizer;
  };

  int stages_;
  plan::Pipeline pipeline_;
  std::vector<Ranked> ranks_;
};

// Cuts a row of numbers into `pieces` of at least one number each, such that the largest sum of a
// piece is as small as possible. Returns how many numbers each piece has.
[[nodiscard]] std::vector<std::size_t> even_pieces(const std::vector<std::int64_t>& numbers,
                                                   std::size_t pieces);

}  // namespace headroom::train
