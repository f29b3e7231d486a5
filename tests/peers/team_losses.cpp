// Trains a small transformer in double on simulated cards, for teams.py:
//
//   team_losses FOLDER REPLICAS STAGES PIPELINE MICRO_BATCH STEPS
//
// FOLDER has net.safetensors with its weights, under the names of its Sequential, and
// batch.safetensors with `tokens` [rows, length]. Prints the loss of each step.
#include <torch/torch.h>

#include <cstdio>
#include <string>
#include <vector>

#include "headroom/optim/optimizer.h"
#include "headroom/sim/simulate.h"
#include "headroom/train/split.h"
#include "headroom/train/step.h"
#include "headroom/weights/tensor_files.h"

namespace {

using namespace headroom;
using torch::Tensor;

constexpr std::int64_t kVocabulary = 50, kWidth = 32, kHeads = 4, kLayers = 4;

struct LayerImpl : torch::nn::Cloneable<LayerImpl> {
  LayerImpl() { reset(); }
  void reset() override {
    before = register_module("before", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kWidth})));
    qkv = register_module("qkv", torch::nn::Linear(kWidth, 3 * kWidth));
    out = register_module("out", torch::nn::Linear(kWidth, kWidth));
    after = register_module("after", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kWidth})));
    up = register_module("up", torch::nn::Linear(kWidth, 4 * kWidth));
    down = register_module("down", torch::nn::Linear(4 * kWidth, kWidth));
  }
  Tensor forward(Tensor x) {
    const std::int64_t rows = x.size(0), length = x.size(1);
    const auto parts =
        qkv(before(x)).view({rows, length, 3, kHeads, -1}).permute({2, 0, 3, 1, 4}).unbind();
    const Tensor seen = at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0,
                                                         /*is_causal=*/true);
    x = x + out(seen.transpose(1, 2).reshape({rows, length, kWidth}));
    return x + down(torch::gelu(up(after(x))));
  }
  torch::nn::LayerNorm before{nullptr}, after{nullptr};
  torch::nn::Linear qkv{nullptr}, out{nullptr}, up{nullptr}, down{nullptr};
};
TORCH_MODULE(Layer);

torch::nn::Sequential net_of(const std::string& file) {
  torch::nn::Sequential net(torch::nn::Embedding(kVocabulary, kWidth));
  for (std::int64_t i = 0; i < kLayers; ++i) net->push_back(Layer());
  net->push_back(torch::nn::Linear(kWidth, kVocabulary));
  net->to(torch::kDouble);
  const torch::NoGradGuard no_grad;
  const weights::TensorFile weights(file);
  for (auto& one : net->named_parameters()) one.value().copy_(weights.read(one.key()));
  return net;
}

void run(const std::vector<std::string>& words) {
  const int replicas = std::stoi(words.at(1)), stages = std::stoi(words.at(2));
  const sim::Simulation box = sim::simulate(std::to_string(replicas * stages) + "x1GiB",
                                            {.mode = sim::Mode::compute, .check_streams = true});
  train::SplitOptions split{.replicas = replicas, .pipeline = plan::pipeline_named(words.at(3))};
  for (int card = 0; card < box.cards(); ++card) split.devices.push_back(box.device(card));
  train::Split net(net_of(words.at(0) + "/net.safetensors"), split);
  train::StepOptions options;
  options.plan.micro_batch = std::stoll(words.at(4));
  train::Step step(
      net.team(
          [](const train::Tensors& parameters) {
            return optim::make_adamw(
                parameters,
                {.learning_rate = 1e-3, .weight_decay = 0.01, .form = optim::OptimizerForm::fused});
          },
          [](const Tensor& logits, const train::Tensors& rows) {
            return torch::nn::functional::cross_entropy(logits.slice(1, 0, -1).flatten(0, 1),
                                                        rows[0].slice(1, 1).flatten());
          }),
      options);
  const Tensor tokens = weights::TensorFile(words.at(0) + "/batch.safetensors").read("tokens");
  for (int i = 0; i < std::stoi(words.at(5)); ++i)
    std::printf("%.17g\n", step.run({tokens}).loss());
}

}  // namespace

int main(int count, char** words) {
  try {
    run({words + 1, words + count});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "team_losses: %s\n", error.what());
    return 1;
  }
}
