#include "headroom/data/synthetic.h"

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <cmath>
#include <functional>

#include "headroom/base/error.h"
#include "headroom/data/loader.h"

namespace headroom::data {
namespace {

using ::testing::ElementsAre;

TEST(SyntheticTokens, AreTheSameEachTime) {
  const SyntheticTokens options{.vocabulary = 50, .seq = 20, .size = 10, .seed = 3};
  const auto one = synthetic_tokens(options), again = synthetic_tokens(options);
  EXPECT_EQ(one->size(), 10);
  EXPECT_TRUE(torch::equal(one->example(4, 1)[0], again->example(4, 2)[0]));
  EXPECT_FALSE(torch::equal(one->example(4, 0)[0], one->example(5, 0)[0]));
  SyntheticTokens validation = options;
  validation.split = Split::validation;
  EXPECT_FALSE(torch::equal(one->example(4, 0)[0], synthetic_tokens(validation)->example(4, 0)[0]));
}

TEST(SyntheticTokens, HaveTheirLabelsWhereTokenFilesHaveThem) {
  SyntheticTokens options{.vocabulary = 50, .seq = 20};
  const Tensors own = synthetic_tokens(options)->example(0, 0);
  EXPECT_TRUE(torch::equal(own[0], own[1]));
  options.labels = TokenOptions::Labels::next;
  const Tensors next = synthetic_tokens(options)->example(0, 0);
  EXPECT_TRUE(torch::equal(next[0], own[0]));
  EXPECT_TRUE(torch::equal(next[0].slice(0, 1), next[1].slice(0, 0, -1)));
}

// The mean loss of a linear model over one epoch, after some steps on the batches before it.
double trained(const std::shared_ptr<Dataset>& set,
               const std::function<torch::Tensor(torch::Tensor)>& model,
               const std::vector<torch::Tensor>& parameters, double rate, int epochs) {
  at::set_num_threads(1);  // small products are faster so
  Loader loader(set, {.batch_size = 16, .shuffle = true, .workers = 0});
  torch::optim::Adam optimizer(parameters, torch::optim::AdamOptions(rate));
  double sum = 0;
  const std::int64_t batches = loader.batches_per_epoch();
  for (std::int64_t i = 0; i < epochs * batches; ++i) {
    const Batch batch = loader.next();
    const torch::Tensor logits = model(batch.tensors[0]),
                        loss = torch::cross_entropy_loss(logits.flatten(0, -2),
                                                         batch.tensors[1].flatten());
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    if (batch.begin.epoch == epochs - 1) sum += loss.item<double>();
  }
  return sum / static_cast<double>(batches);
}

// A table of what follows each token is all there is to learn: 10 % of surprise among 20 tokens.
TEST(SyntheticTokens, CanBeLearned) {
  torch::manual_seed(0);
  const auto set = synthetic_tokens(
      {.vocabulary = 20, .seq = 32, .size = 128, .labels = TokenOptions::Labels::next});
  torch::nn::Embedding table(20, 20);
  const double loss = trained(
      set, [&](const torch::Tensor& tokens) { return table->forward(tokens); }, table->parameters(),
      0.1, 8);
  const double best = -(0.905 * std::log(0.905) + 0.095 * std::log(0.005));
  EXPECT_LT(loss, 1.3 * best);
  EXPECT_LT(loss, 0.4 * std::log(20));
}

TEST(SyntheticImages, CanBeLearned) {
  torch::manual_seed(0);
  const auto set = synthetic_images({.classes = 5, .size = 100, .image = {.side = 8}});
  torch::nn::Sequential net(torch::nn::Flatten(), torch::nn::Linear(3 * 8 * 8, 5));
  const double loss = trained(
      set, [&](const torch::Tensor& pixels) { return net->forward(pixels); }, net->parameters(),
      0.003, 10);
  EXPECT_LT(loss, 0.3 * std::log(5));
}

TEST(SyntheticImages, LookLikeNormalisedImages) {
  const auto set = synthetic_images({.classes = 3, .size = 9, .image = {.side = 16}});
  const Tensors one = set->example(4, 0);
  EXPECT_THAT(one[0].sizes(), ElementsAre(3, 16, 16));
  EXPECT_EQ(one[1].item<std::int64_t>(), 1);
  EXPECT_LT(one[0].abs().max().item<double>(), 3);
  EXPECT_TRUE(torch::equal(one[0], set->example(4, 7)[0]));
  EXPECT_FALSE(torch::equal(one[0], set->example(7, 0)[0]));
}

TEST(Synthetic, NamesSizesThatMakeNoSense) {
  EXPECT_THROW(static_cast<void>(synthetic_tokens({.vocabulary = 0})), UsageError);
  EXPECT_THROW(static_cast<void>(synthetic_tokens({.seq = 0})), UsageError);
  EXPECT_THROW(static_cast<void>(synthetic_images({.classes = 0})), UsageError);
  EXPECT_THROW(static_cast<void>(synthetic_images({.size = 0})), UsageError);
}

}  // namespace
}  // namespace headroom::data
