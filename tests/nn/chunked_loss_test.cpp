#include "headroom/nn/chunked_loss.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <cmath>

#include "headroom/base/error.h"
#include "headroom/libtorch/autocast.h"
#include "headroom/sim/simulate.h"
#include "tests/nn/tiny_models.h"

namespace headroom::nn {
namespace {

using torch::Tensor;

struct Result {
  Tensor loss, of_states, of_weight;
};

// Ten tokens, three of which are ignored; `tokens` 0: all at once.
Result result_of(std::int64_t tokens) {
  torch::manual_seed(4);
  const Tensor weight = torch::randn({7, 5}).requires_grad_();
  Tensor states = torch::randn({2, 5, 5}).requires_grad_();
  Tensor labels = torch::randint(7, {2, 5});
  labels.view(-1).slice(0, 4, 7).fill_(-100);
  const auto head = [weight](const Tensor& x) { return torch::linear(x, weight); };
  Result result;
  result.loss = tokens == 0 ? torch::nn::functional::cross_entropy(head(states).view({-1, 7}),
                                                                   labels.view({-1}))
                            : chunked_cross_entropy(head, states, labels, {.tokens = tokens});
  result.loss.backward();
  result.of_states = states.grad();
  result.of_weight = weight.grad();
  return result;
}

TEST(ChunkedCrossEntropy, GivesLossAndGradientsOfTheWhole) {
  const Result whole = result_of(0);
  for (const std::int64_t tokens : {1, 3, 5, 10, 99}) {
    const Result chunked = result_of(tokens);
    EXPECT_TRUE(torch::allclose(chunked.loss, whole.loss, 1e-6, 1e-7)) << tokens;
    EXPECT_TRUE(torch::allclose(chunked.of_states, whole.of_states, 1e-5, 1e-7)) << tokens;
    EXPECT_TRUE(torch::allclose(chunked.of_weight, whole.of_weight, 1e-5, 1e-7)) << tokens;
  }
}

std::vector<Tensor> gradients_of(const std::string& type, models::Settings settings, bool mixed) {
  const auto model = tiny_model(type, settings);
  return loss_and_gradients(*model, mixed);
}

// Tied heads (llama, gpt2, t5, bert, distilbert), a capped one (gemma2), one with a bias (phi), and
// a loss of routes beside (mixtral).
TEST(ChunkedLoss, OfEveryFamilyIsTheFullOne) {
  for (const char* type : {"llama", "gpt2", "t5", "bert", "roberta", "distilbert", "gemma2", "phi",
                           "mixtral", "gpt_neo", "opt"})
    expect_close(gradients_of(type, {.loss_chunk = 5}, false), gradients_of(type, {}, false), 1e-5,
                 type);
}

TEST(ChunkedLoss, GoesWithCheckpointingAndAutocast) {
  for (const Recompute how : {Recompute::nonreentrant, Recompute::reentrant})
    for (const bool mixed : {false, true}) {
      models::Settings full;
      full.checkpointing.how = how;
      models::Settings chunked = full;
      chunked.loss_chunk = 3;
      expect_close(gradients_of("llama", chunked, mixed), gradients_of("llama", full, mixed),
                   mixed ? 0.02 : 1e-5, mixed ? "autocast" : "float32");
    }
}

TEST(ChunkedLoss, HasNoLogits) {
  const auto model = tiny_model("llama", {.loss_chunk = 4});
  EXPECT_FALSE(model->run(tiny_batch(*model)).logits.defined());
  models::Batch without = tiny_batch(*model);
  without.labels.reset();
  EXPECT_TRUE(model->run(without).logits.defined());
}

TEST(ChunkedLoss, IsRefusedWhereALossHasNoTokens) {
  EXPECT_THROW((void)tiny_model("vit", {.loss_chunk = 4}), UsageError);
  EXPECT_THROW(
      (void)tiny_model("bert", {.task = models::Task::sequence_classification, .loss_chunk = 4}),
      UsageError);
}

TEST(ChunkedCrossEntropy, RefusesMismatchedArguments) {
  const auto head = [](const Tensor& x) { return x; };
  const Tensor states = torch::ones({2, 3, 5}), labels = torch::zeros({2, 3}, torch::kLong);
  EXPECT_THROW((void)chunked_cross_entropy(head, states, labels, {.tokens = 0}), UsageError);
  EXPECT_THROW((void)chunked_cross_entropy(head, states, labels.slice(1, 1)), UsageError);
  EXPECT_THROW((void)chunked_cross_entropy(head, states, labels.t()), UsageError);
}

// As cross_entropy: the mean of nothing.
TEST(ChunkedCrossEntropy, OfIgnoredLabelsOnlyIsNotANumber) {
  const Tensor labels = torch::full({4}, -100, torch::kLong);
  const auto head = [](const Tensor& x) { return x; };
  EXPECT_TRUE(std::isnan(chunked_cross_entropy(head, torch::ones({4, 5}), labels).item<double>()));
}

// 4096 tokens of width 64 (1 MiB), 16384 classes: 256 MiB of logits, 64 for each of four chunks.
TEST(ChunkedCrossEntropy, KeepsThreeTensorsOfOneChunksLogits) {
  constexpr std::int64_t kMiB = 1 << 20;
  const sim::Simulation box = sim::simulate("1x8GiB");
  const auto peak = [&](std::int64_t tokens) {
    const Tensor weight = torch::empty({16384, 64}, box.device(0)).requires_grad_();  // 4 MiB
    const Tensor states = torch::empty({4096, 64}, box.device(0)).requires_grad_();
    const Tensor labels = torch::empty({4096}, torch::dtype(torch::kLong).device(box.device(0)));
    const auto head = [weight](const Tensor& x) { return torch::linear(x, weight); };
    const std::int64_t before = box.card(0).statistics().allocated_bytes.all.current;
    box.card(0).reset_peaks();
    chunked_cross_entropy(head, states, labels, {.tokens = tokens}).backward();
    return (box.card(0).statistics().allocated_bytes.all.peak - before) / kMiB;
  };
  // log_softmax's result, the loss's gradient, and log_softmax's; beside them the gradients so far
  EXPECT_EQ(peak(4096), 3 * 256);
  EXPECT_EQ(peak(1024), 3 * 64 + 4 + 1);
}

}  // namespace
}  // namespace headroom::nn
