// Freezing: frozen parameters get no gradient, so neither gradients nor optimizer state take
// memory, and nothing is kept for the backward pass of the layers before the first trained
// parameter.
//
//   nn::freeze_all_but_heads(model->module());    // a linear probe
//
// The frozen part stays in training mode: dropout stays active and batch norm updates its averages,
// as after `requires_grad_(False)` in Python.
//
// Threads: the same rules as for the model.
#pragma once

#include <string>
#include <vector>

namespace torch::nn {
class Module;
}

namespace headroom::nn {

// The names that transformers' models give to the heads on their backbone: lm_head, classifier, ...
[[nodiscard]] const std::vector<std::string>& usual_heads();

// Trains only the model's children of these names. A head that shares the embedding's weight trains
// that weight, so the backward pass runs through the whole model. Throws UsageError if the model
// has none of them; the message names its children.
void freeze_all_but_heads(torch::nn::Module& model,
                          const std::vector<std::string>& heads = usual_heads());

// Trains these children, and leaves the others unchanged. Returns how many were found.
int train_heads(torch::nn::Module& model, const std::vector<std::string>& heads = usual_heads());

}  // namespace headroom::nn
