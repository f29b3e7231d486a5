// Models that are tiny in every number, of every family: for what must hold in all of them.
#pragma once

#include <memory>
#include <string>

#include "headroom/models/batch.h"
#include "headroom/models/initialise.h"
#include "headroom/models/model.h"

namespace headroom::nn {

// Without dropout; widths of 16, two layers, a vocabulary of 96 tokens. Embeddings are tied where
// the family does so.
[[nodiscard]] model::ModelConfig tiny_config(const std::string& type);

// With the values of a new model, the same each time.
[[nodiscard]] std::shared_ptr<models::Model> tiny_model(const std::string& type,
                                                        const models::Settings& settings = {},
                                                        c10::Device device = at::kCPU);

// A batch of two rows of 8 tokens, or of two images; the same each time.
[[nodiscard]] models::Batch tiny_batch(const models::Model& model, c10::Device device = at::kCPU);

}  // namespace headroom::nn
