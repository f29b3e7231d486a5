// Models that are tiny in every number, of every family: for what must hold in all of them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "headroom/models/batch.h"
#include "headroom/models/initialise.h"
#include "headroom/models/model.h"

namespace headroom::nn {

// Without dropout; widths of 16, two layers, a vocabulary of 96 tokens. Embeddings are tied where
// the family does so.
[[nodiscard]] model::ModelConfig tiny_config(const std::string& type);

// With the values of a new model, drawn with this seed each time.
inline constexpr std::uint64_t kTinySeed = 3;
[[nodiscard]] std::shared_ptr<models::Model> tiny_model(const std::string& type,
                                                        const models::Settings& settings = {},
                                                        c10::Device device = at::kCPU);

// A batch of two rows of 8 tokens, or of two images; the same each time.
[[nodiscard]] models::Batch tiny_batch(const models::Model& model, c10::Device device = at::kCPU);

// The loss of a tiny batch, some labels of which do not count, and the gradients of all parameters
// after three micro-batches: gradients are added to those that are there. `mixed`: under bf16
// autocast.
[[nodiscard]] std::vector<at::Tensor> loss_and_gradients(models::Model& model, bool mixed);

// Expects each tensor to be as near as `within` times the largest number of the other.
void expect_close(const std::vector<at::Tensor>& one, const std::vector<at::Tensor>& other,
                  double within, const std::string& where);

}  // namespace headroom::nn
