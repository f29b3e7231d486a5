// Freezing: parameters that get no gradient, so neither gradients nor an optimizer's state take
// memory, and nothing is kept for the backward pass of what lies before the first that is trained.
//
//   nn::freeze_all_but_heads(model->module());    // a linear probe
//
// The frozen part stays in training mode: dropout drops, batch norm goes on averaging, as after
// `requires_grad_(False)` in Python.
//
// Threads: as the model's.
#pragma once

#include <string>
#include <vector>

namespace torch::nn {
class Module;
}

namespace headroom::nn {

// What transformers' models call the parts that stand on their backbone: lm_head, classifier, ...
[[nodiscard]] const std::vector<std::string>& usual_heads();

// Only the model's children of these names are trained. A head that computes with the embedding's
// weight trains that, embedding included: then the backward pass goes through the whole model.
// Throws UsageError where the model has none of them (its children are named).
void freeze_all_but_heads(torch::nn::Module& model,
                          const std::vector<std::string>& heads = usual_heads());

// Trains these children, and leaves the others as they are. How many of them there are.
int train_heads(torch::nn::Module& model, const std::vector<std::string>& heads = usual_heads());

}  // namespace headroom::nn
