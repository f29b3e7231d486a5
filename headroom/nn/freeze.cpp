#include "headroom/nn/freeze.h"

#include <torch/nn/module.h>

#include <algorithm>
#include <memory>

#include "headroom/base/error.h"
#include "headroom/base/text.h"
#include "headroom/nn/layers.h"

namespace headroom::nn {
namespace {

void train(torch::nn::Module& head) {
  for (Tensor& parameter : head.parameters()) parameter.set_requires_grad(true);
  // A weight tied to the embedding is not among the head's parameters.
  for (const auto& module : head.modules())
    if (auto* const linear = dynamic_cast<Linear*>(module.get()))
      linear->weight.set_requires_grad(true);
}

std::vector<std::shared_ptr<torch::nn::Module>> heads_of(const torch::nn::Module& model,
                                                         const std::vector<std::string>& heads) {
  std::vector<std::shared_ptr<torch::nn::Module>> found;
  for (const auto& child : model.named_children())
    if (std::find(heads.begin(), heads.end(), child.key()) != heads.end())
      found.push_back(child.value());
  return found;
}

}  // namespace

const std::vector<std::string>& usual_heads() {
  static const std::vector<std::string> all = {
      "lm_head",         "embed_out",        "score",           "classifier", "pre_classifier",
      "vocab_transform", "vocab_layer_norm", "vocab_projector", "cls"};
  return all;
}

int train_heads(torch::nn::Module& model, const std::vector<std::string>& heads) {
  const auto found = heads_of(model, heads);
  for (const auto& head : found) train(*head);
  return static_cast<int>(found.size());
}

void freeze_all_but_heads(torch::nn::Module& model, const std::vector<std::string>& heads) {
  if (heads_of(model, heads).empty()) {
    std::vector<std::string> names;
    for (const auto& child : model.named_children()) names.push_back(child.key());
    throw UsageError(expectation("freeze_all_but_heads", "a model with " + join(heads, ", "),
                                 "one of " + join(names, ", "), "the names of its own heads"));
  }
  for (Tensor& parameter : model.parameters()) parameter.set_requires_grad(false);
  train_heads(model, heads);
}

}  // namespace headroom::nn
