#include "headroom/nn/detail/checked_targets.h"

#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>

#include <algorithm>
#include <cmath>

#include "headroom/base/error.h"

namespace headroom::nn::detail {
namespace {

using torch::nn::Module;

void check(const LoraLayer& layer) {
  if (layer.rank < 1)
    throw UsageError(expectation("add_lora", "a rank of 1 or more", std::to_string(layer.rank)));
  if (!std::isfinite(layer.alpha))
    throw UsageError(expectation("add_lora", "a finite alpha", std::to_string(layer.alpha)));
}

template <typename Convolution>
bool has_groups(Module& layer) {
  const auto* const convolution = dynamic_cast<Convolution*>(&layer);
  return convolution != nullptr && convolution->options.groups() != 1;
}

void refuse(const Target& target, const std::string& what) {
  throw UsageError(expectation("add_lora", "layers that can have an adapter",
                               target.path + ", " + what, "other targets"));
}

void check(const Target& target, const std::vector<Target>& layers) {
  if (target.has_adapter()) refuse(target, "which has one");
  if (target.after != nullptr) return;
  if (has_groups<torch::nn::Conv1dImpl>(*target.layer) ||
      has_groups<torch::nn::Conv2dImpl>(*target.layer))
    refuse(target, "a convolution in groups");
  const auto* const table = dynamic_cast<torch::nn::EmbeddingImpl*>(target.layer);
  if (table != nullptr && table->options.max_norm())
    refuse(target, "an embedding with max_norm, which changes its weight as it is used");
  for (const Target& other : layers)
    if (other.layer != target.layer && other.weight.is_same(target.weight) &&
        other.kind == target.kind)
      refuse(target, "whose weight is that of " + other.path + ", too");
}

}  // namespace

std::vector<Target> checked_targets(Module& model, const std::vector<LoraLayer>& layers) {
  const std::vector<Target> all = layers_with_weights(model);
  std::vector<Target> targets;
  for (const LoraLayer& layer : layers) {
    check(layer);
    const auto target = std::find_if(all.begin(), all.end(),
                                     [&](const Target& each) { return each.path == layer.name; });
    if (target == all.end())
      throw UsageError(
          expectation("add_lora", "a layer that can have an adapter", layer.name, "lora_layers"));
    check(*target, all);
    for (const Target& earlier : targets)
      if (earlier.layer == target->layer)
        refuse(*target, earlier.path == target->path
                            ? "named twice"
                            : "which is the same layer as " + earlier.path);
    targets.push_back(*target);
  }
  return targets;
}

}  // namespace headroom::nn::detail
