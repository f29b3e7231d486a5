#include "headroom/nn/checkpoint_modules.h"

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/instancenorm.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "headroom/base/error.h"

namespace headroom::nn {
namespace {

using at::Tensor;
using torch::nn::Module;

// When it ends, the running statistics of the module's norms are as they were.
class FixedStatistics {
 public:
  explicit FixedStatistics(Module& module) {
    fix(module);
    for (const auto& inner : module.modules(/*include_self=*/false)) fix(*inner);
  }
  ~FixedStatistics() {
    // A module may be there twice: its first values are the true ones.
    while (!put_back_.empty()) {
      put_back_.back()();
      put_back_.pop_back();
    }
  }
  FixedStatistics(const FixedStatistics&) = delete;
  FixedStatistics& operator=(const FixedStatistics&) = delete;

 private:
  void fix(Module& module) {
    fix_norm(module.as<torch::nn::BatchNorm1dImpl>());
    fix_norm(module.as<torch::nn::BatchNorm2dImpl>());
    fix_norm(module.as<torch::nn::BatchNorm3dImpl>());
    put_back_values(module.as<torch::nn::InstanceNorm1dImpl>());
    put_back_values(module.as<torch::nn::InstanceNorm2dImpl>());
    put_back_values(module.as<torch::nn::InstanceNorm3dImpl>());
  }

  template <typename Norm>
  void fix_norm(Norm* norm) {
    if (norm == nullptr) return;
    put_back_.push_back([norm, momentum = norm->options.momentum(),
                         batches = std::exchange(norm->num_batches_tracked, Tensor())] {
      norm->options.momentum(momentum);
      norm->num_batches_tracked = batches;
    });
    norm->options.momentum(0.0);
  }

  // Even without momentum its averages over the batch would be rounded.
  template <typename Norm>
  void put_back_values(Norm* norm) {
    if (norm == nullptr || !norm->running_mean.defined() || !norm->is_training()) return;
    const at::NoGradGuard no_grad;
    put_back_.push_back([norm, mean = norm->running_mean.clone(), var = norm->running_var.clone()] {
      const at::NoGradGuard none;
      norm->running_mean.copy_(mean);
      norm->running_var.copy_(var);
    });
  }

  std::vector<std::function<void()>> put_back_;
};

}  // namespace

Tensor checkpointed(Recompute how, Module& module, const std::function<Tensor(const Tensor&)>& part,
                    const Tensor& x) {
  const std::function<Tensor(const Tensor&)> once_counted = [&module, part](const Tensor& in) {
    if (!recomputing()) return part(in);
    const FixedStatistics fixed(module);
    return part(in);
  };
  return checkpointed(how, once_counted, x);
}

Tensor checkpointed_sequential(Recompute how, torch::nn::SequentialImpl& net, const Tensor& x,
                               std::size_t segments) {
  if (segments < 1 || segments > net.size())
    throw UsageError(expectation(
        "checkpointed_sequential",
        net.is_empty() ? "a Sequential with modules"
                       : "1 to " + std::to_string(net.size()) + " segments, as there are modules",
        net.is_empty() ? "an empty one" : std::to_string(segments)));
  const std::size_t length = net.size() / segments;
  Tensor states = x;
  auto next = net.begin();
  const auto take = [&](std::size_t modules) {
    auto segment = std::make_shared<torch::nn::SequentialImpl>();
    for (; modules > 0; --modules) segment->push_back(*next++);
    return segment;
  };
  for (std::size_t i = 1; i < segments; ++i) {
    const auto segment = take(length);
    const auto part = [segment](const Tensor& in) { return segment->forward(in); };
    states = checkpointed(how, *segment, part, states);
  }
  return take(net.size() - length * (segments - 1))->forward(states);
}

}  // namespace headroom::nn
