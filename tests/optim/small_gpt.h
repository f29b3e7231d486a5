// A small GPT that learns structured text: whether training with numbers of fewer bits still
// learns.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "headroom/model/model_config.h"
#include "headroom/models/initialise.h"
#include "headroom/models/model.h"
#include "headroom/optim/optimizer.h"

namespace headroom::small_gpt {

inline constexpr std::int64_t kWords = 256, kLength = 64, kRows = 8;

// Each word has four followers, of which the one three places before chooses: learnable, and not at
// once.
inline torch::Tensor text(std::int64_t rows, std::uint64_t seed) {
  torch::manual_seed(99);
  const torch::Tensor followers = torch::randint(kWords, {kWords, 4});
  torch::manual_seed(seed);
  torch::Tensor rows_of_words = torch::randint(kWords, {rows, kLength});
  const torch::Tensor chance = torch::rand({rows, kLength});
  for (std::int64_t at = 3; at < kLength; ++at) {
    const torch::Tensor before = rows_of_words.select(1, at - 1);
    const torch::Tensor chosen = rows_of_words.select(1, at - 3) % 4;
    const torch::Tensor next = followers.index({before, chosen});
    const torch::Tensor kept = chance.select(1, at) < 0.95;
    rows_of_words.select(1, at).copy_(torch::where(kept, next, rows_of_words.select(1, at)));
  }
  return rows_of_words;
}

inline std::shared_ptr<models::Model> build(at::ScalarType type) {
  const Json config{{"architectures", {"GPT2LMHeadModel"}},
                    {"model_type", "gpt2"},
                    {"n_embd", 64},
                    {"n_head", 4},
                    {"n_layer", 2},
                    {"n_positions", kLength},
                    {"vocab_size", kWords},
                    {"resid_pdrop", 0.0},
                    {"embd_pdrop", 0.0},
                    {"attn_pdrop", 0.0},
                    {"bos_token_id", 0},
                    {"eos_token_id", 0}};
  auto model = models::build({config, "small-gpt"});
  models::initialise(*model);
  model->module().to(type);
  return model;
}

// Makes an optimizer of these parameters from a seed.
using MakeOptimizer = std::function<std::unique_ptr<optim::Optimizer>(
    const std::vector<torch::Tensor>&, std::uint64_t)>;

// The losses of `steps` steps.
inline std::vector<double> train(at::ScalarType type, const MakeOptimizer& make, long steps,
                                 std::uint64_t seed) {
  torch::manual_seed(seed);
  const auto model = build(type);
  const auto optimizer = make(model->module().parameters(), seed);
  std::vector<double> losses;
  for (long step = 0; step < steps; ++step) {
    const torch::Tensor rows = text(kRows, 1000 * seed + static_cast<std::uint64_t>(step));
    optimizer->zero_grad();
    const torch::Tensor loss = model->run({.tokens = rows, .labels = rows}).loss;
    loss.backward();
    optimizer->step();
    losses.push_back(loss.item<double>());
  }
  return losses;
}

// The mean of the last tenth of the losses.
inline double last_of(const std::vector<double>& losses) {
  const std::size_t tenth = losses.size() / 10;
  double sum = 0;
  for (std::size_t i = losses.size() - tenth; i < losses.size(); ++i) sum += losses[i];
  return sum / static_cast<double>(tenth);
}

}  // namespace headroom::small_gpt
