// A net of layers that stages can share out, the team of its stages on simulated cards, and all
// that its steps change.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <memory>
#include <string>

#include "headroom/nn/checkpoint.h"
#include "headroom/sim/simulate.h"
#include "headroom/train/split.h"
#include "headroom/train/step.h"
#include "nets.h"

namespace headroom::train::staged {

using plan::Pipeline;
using torch::Tensor;

inline constexpr std::int64_t kIn = 10, kHidden = 12, kOut = 5;

struct LayerImpl : torch::nn::Cloneable<LayerImpl> {
  explicit LayerImpl(nn::Recompute how = nn::Recompute::none) : recompute(how) { reset(); }
  void reset() override {
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kHidden})));
    up = register_module("up", torch::nn::Linear(kHidden, 30));
    down = register_module("down", torch::nn::Linear(30, kHidden));
  }
  Tensor forward(const Tensor& x) {
    return nn::checkpointed(
        recompute,
        [this](const Tensor& in) { return in + down->forward(torch::gelu(up(norm(in)))); }, x);
  }
  nn::Recompute recompute;
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Linear up{nullptr}, down{nullptr};
};
TORCH_MODULE(Layer);

inline torch::nn::Sequential layers(int count, torch::ScalarType type,
                                    nn::Recompute how = nn::Recompute::none) {
  torch::nn::Sequential net(torch::nn::Linear(kIn, kHidden));
  for (int i = 0; i < count; ++i) net->push_back(Layer(how));
  net->push_back(torch::nn::Linear(kHidden, kOut));
  net->to(type);
  return net;
}

inline std::unique_ptr<optim::Optimizer> adamw(const Tensors& parameters) {
  return optim::make_adamw(parameters,
                           {.learning_rate = 1e-2, .form = optim::OptimizerForm::fused});
}

inline Tensor loss_of(const Tensor& logits, const Tensors& rows) {
  return torch::nn::functional::cross_entropy(logits, rows[1]);
}

inline Tensors batch_of(std::int64_t rows, torch::ScalarType type = torch::kFloat) {
  return {torch::randn({rows, kIn}).to(type), torch::randint(kOut, {rows})};
}

inline StepOptions plain(std::int64_t micro_batch) {
  StepOptions options;
  options.prices = options.adapts = false;
  options.plan.micro_batch = micro_batch;
  return options;
}

inline sim::Simulation cards(int count) {
  return sim::simulate(std::to_string(count) + "x1GiB",
                       {.mode = sim::Mode::compute, .check_streams = true});
}

struct Shape {
  int replicas = 1, stages = 1;
  Pipeline pipeline = Pipeline::one_by_one;
  [[nodiscard]] int ranks() const { return replicas * stages; }
};

struct Together {
  Together(const sim::Simulation& box, const Shape& shape, const torch::nn::Sequential& net,
           const StepOptions& options)
      : split(net, options_of(box, shape)),
        step(split.team(&adamw,
                        [this](const Tensor& output, const Tensors& rows) {
                          if (before_loss) before_loss(output.device());
                          return loss_of(output, rows);
                        }),
             options) {}

  static SplitOptions options_of(const sim::Simulation& box, const Shape& shape) {
    SplitOptions options{.replicas = shape.replicas, .pipeline = shape.pipeline};
    for (int rank = 0; rank < shape.ranks(); ++rank) options.devices.push_back(box.device(rank));
    return options;
  }

  // Parameters and optimizer states of a replica, and no gradients.
  Tensors state(const Shape& shape, int replica) {
    Tensors all;
    const auto first = static_cast<std::size_t>(replica * shape.stages);
    const std::size_t last = first + static_cast<std::size_t>(shape.stages);
    for (std::size_t rank = first; rank < last; ++rank)
      for (const Tensor& one : split.stage(rank).parameters()) {
        EXPECT_FALSE(one.grad().defined());
        all.push_back(one.detach().cpu().clone());
      }
    for (std::size_t rank = first; rank < last; ++rank)
      for (std::size_t i = 0; i < split.optimizer(rank).parameters().size(); ++i)
        for (const auto& [name, state] : split.optimizer(rank).state(i))
          all.push_back(state.cpu().clone());
    return all;
  }
  Tensors state(const Shape& shape) {
    Tensors all = state(shape, 0);
    for (int replica = 1; replica < shape.replicas; ++replica) {
      SCOPED_TRACE("replica " + std::to_string(replica));
      expect_same(state(shape, replica), all);
    }
    return all;
  }

  std::function<void(c10::Device)> before_loss;
  Split split;
  Step step;
};

}  // namespace headroom::train::staged
