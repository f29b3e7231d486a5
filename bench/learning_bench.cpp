// Learning with numbers of fewer bits: a small GPT on structured text, trained in float32 and in
// each other way from the same weights on the same batches. Prints the mean of the last tenth of
// the losses beside float32's.
//
//   bench_learning [steps] [seeds]     default 1000 3
#include <torch/torch.h>

#include <array>
#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

#include "bench/measure.h"
#include "headroom/libtorch/on.h"
#include "headroom/model/model_config.h"
#include "headroom/models/initialise.h"
#include "headroom/models/model.h"
#include "headroom/optim/optimizer.h"

namespace {

using namespace headroom;
using Tensors = std::vector<torch::Tensor>;
using optim::Rounding;

constexpr std::int64_t kWords = 256, kLength = 64, kRows = 8;

// Each word has four followers, of which the one three places before chooses: learnable, and not at
// once.
torch::Tensor text(std::int64_t rows, std::uint64_t seed) {
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

struct Way {
  const char* name;
  at::ScalarType type;
  std::function<std::unique_ptr<optim::Optimizer>(const Tensors&, std::uint64_t)> make;
};

optim::AdamWOptions adamw(Rounding rounding, std::uint64_t seed) {
  return {.form = optim::OptimizerForm::fused, .rounding = rounding, .seed = seed};
}

const std::vector<Way> kWays{
    {"float32", at::kFloat,
     [](const Tensors& of, std::uint64_t seed) {
       return optim::make_adamw(of, adamw(Rounding::nearest, seed));
     }},
    {"8-bit states", at::kFloat,
     [](const Tensors& of, std::uint64_t) { return optim::make_compact_adamw(of); }},
    {"4-bit states", at::kFloat,
     [](const Tensors& of, std::uint64_t) { return optim::make_compact_adamw(of, {.bits = 4}); }},
    {"bf16, stochastic", at::kBFloat16,
     [](const Tensors& of, std::uint64_t seed) {
       return optim::make_adamw(of, adamw(Rounding::stochastic, seed));
     }},
    {"bf16, 8-bit, stochastic", at::kBFloat16,
     [](const Tensors& of, std::uint64_t seed) {
       return optim::make_compact_adamw(of, {.rounding = Rounding::stochastic, .seed = seed});
     }},
    {"bf16, nearest", at::kBFloat16, [](const Tensors& of, std::uint64_t seed) {
       return optim::make_adamw(of, adamw(Rounding::nearest, seed));
     }}};

std::shared_ptr<models::Model> small_gpt(at::ScalarType type) {
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

// First loss, and the mean of the last tenth.
std::array<double, 2> train(const Way& way, long steps, std::uint64_t seed) {
  torch::manual_seed(seed);
  const auto model = small_gpt(way.type);
  const auto optimizer = way.make(model->module().parameters(), seed);
  double first = 0, last = 0;
  for (long step = 0; step < steps; ++step) {
    const torch::Tensor rows = text(kRows, 1000 * seed + static_cast<std::uint64_t>(step));
    optimizer->zero_grad();
    const torch::Tensor loss = model->run({.tokens = rows, .labels = rows}).loss;
    loss.backward();
    optimizer->step();
    const double value = loss.item<double>();
    if (step == 0) first = value;
    if (step >= steps - steps / 10) last += value / static_cast<double>(steps / 10);
  }
  return {first, last};
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Arguments given(argc, argv);
  const long steps = given(1, 1000), seeds = given(2, 3);
  std::printf("a GPT of 2 layers and width 64, %ld steps, %ld seeds: mean of the last %ld losses\n",
              steps, seeds, steps / 10);
  double usual = 0;
  for (const Way& way : kWays) {
    double first = 0, last = 0;
    for (long seed = 1; seed <= seeds; ++seed) {
      const auto [begin, end] = train(way, steps, static_cast<std::uint64_t>(seed));
      first += begin / static_cast<double>(seeds);
      last += end / static_cast<double>(seeds);
    }
    if (usual == 0) usual = last;
    std::printf("  %-24s %.4f  %+6.2f %% of float32, %.0f %% of the first loss\n", way.name, last,
                100 * (last / usual - 1), 100 * last / first);
    std::fflush(stdout);
  }
}
