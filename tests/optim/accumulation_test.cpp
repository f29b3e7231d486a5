#include "headroom/optim/accumulation.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <nlohmann/json.hpp>

#include "headroom/base/error.h"
#include "headroom/models/batch.h"
#include "headroom/models/model.h"

namespace headroom::optim {
namespace {

using torch::Tensor;

std::shared_ptr<models::Model> tiny_llama(models::Task task) {
  const Json file = {{"model_type", "llama"},        {"hidden_size", 16},
                     {"intermediate_size", 32},      {"num_attention_heads", 2},
                     {"num_hidden_layers", 1},       {"vocab_size", 50},
                     {"tie_word_embeddings", false}, {"pad_token_id", 0}};
  const auto model = models::build(model::ModelConfig(file, "a tiny llama"), {.task = task});
  const torch::NoGradGuard no_grad;
  torch::manual_seed(1);
  for (Tensor& parameter : model->module().parameters()) parameter.normal_(0, 0.3);
  return model;
}

// Six texts of 1 to 8 tokens: what comes after their ends does not count.
models::Batch texts(const models::Model& model) {
  torch::manual_seed(2);
  models::Batch batch = models::random_batch(model, {.rows = 6, .length = 8}, torch::kCPU);
  if (batch.labels.dim() == 2)
    for (std::int64_t row = 0; row < 6; ++row)
      batch.labels[row].slice(0, row < 2 ? 1 : row + 3).fill_(-100);
  return batch;
}

std::vector<Tensor> taken_gradients(models::Model& model) {
  std::vector<Tensor> gradients;
  for (const Tensor& parameter : model.module().parameters()) {
    gradients.push_back(parameter.grad());
    parameter.mutable_grad().reset();
  }
  return gradients;
}

bool close(const std::vector<Tensor>& one, const std::vector<Tensor>& other) {
  bool all = true;
  for (std::size_t i = 0; i < one.size(); ++i)
    all = all && torch::allclose(one[i], other[i], 1e-4, 1e-6);
  return all;
}

struct Gradients {
  std::vector<Tensor> whole, shares, means;
};

Gradients gradients_of(models::Model& model) {
  const models::Batch batch = texts(model);
  Gradients result;
  model.run(batch).loss.backward();
  result.whole = taken_gradients(model);
  const Tensor all = counted_labels(model, batch);
  for (const Rows& some : parts_of({.count = 6}, 2)) {
    const models::Batch part = models::rows_of(batch, some.first, some.count);
    share_of_batch(model.run(part).loss, counted_labels(model, part), all).backward();
  }
  result.shares = taken_gradients(model);
  for (std::int64_t row = 2; row < 6; row += 2)
    (model.run(models::rows_of(batch, row, 2)).loss / 2).backward();
  result.means = taken_gradients(model);
  return result;
}

// The first two texts have one token: nothing in that part is predicted, and its loss is no number.
TEST(Accumulation, OfPartsWithUnequalNumbersOfLabelsGivesTheGradientsOfTheWhole) {
  const auto model = tiny_llama(models::Task::causal_lm);
  const Gradients gradients = gradients_of(*model);
  EXPECT_TRUE(close(gradients.shares, gradients.whole));
  EXPECT_FALSE(close(gradients.means, gradients.whole));
}

TEST(Accumulation, OfRowsThatCountAlikeIsTheMeanOfTheParts) {
  const auto model = tiny_llama(models::Task::sequence_classification);
  const Gradients gradients = gradients_of(*model);
  EXPECT_TRUE(close(gradients.shares, gradients.whole));
}

TEST(Accumulation, OfUnevenPartsByRows) {
  const auto model = tiny_llama(models::Task::sequence_classification);
  const models::Batch batch = texts(*model);
  model->run(batch).loss.backward();
  const std::vector<Tensor> whole = taken_gradients(*model);
  for (const std::int64_t at_once : {1, 4, 5, 7}) {
    for (const Rows& part : parts_of({.count = 6}, at_once)) {
      const models::Batch rows = models::rows_of(batch, part.first, part.count);
      share_of_batch(model->run(rows).loss, part.count, 6).backward();
    }
    EXPECT_TRUE(close(taken_gradients(*model), whole)) << at_once;
  }
}

// An epoch of 10 rows in steps of 6, in parts of 4.
TEST(Accumulation, PartsEndWithWhatRemains) {
  std::vector<std::pair<std::int64_t, std::int64_t>> parts;
  for (const Rows& step : parts_of({.count = 10}, 6))
    for (const Rows& part : parts_of(step, 4)) parts.emplace_back(part.first, part.count);
  EXPECT_EQ(parts, (decltype(parts){{0, 4}, {4, 2}, {6, 4}}));
  EXPECT_TRUE(parts_of({}, 4).empty());
  EXPECT_THROW((void)parts_of({.count = 4}, 0), UsageError);
}

TEST(CountedLabels, LeavesOutWhatNoPositionPredicts) {
  const auto model = tiny_llama(models::Task::causal_lm);
  models::Batch batch;
  batch.labels = torch::ones({2, 8}, torch::kLong);
  EXPECT_EQ(counted_labels(*model, batch).item<std::int64_t>(), 14);  // the first of each row
  batch.labels[0].slice(0, 0, 3).fill_(-100);
  EXPECT_EQ(counted_labels(*model, batch).item<std::int64_t>(), 12);
  const auto classifier = tiny_llama(models::Task::sequence_classification);
  batch.labels = torch::ones({5}, torch::kLong);
  EXPECT_EQ(counted_labels(*classifier, batch).item<std::int64_t>(), 5);
}

TEST(Accumulation, APartOfNothingAddsNothing) {
  const at::Tensor x = torch::ones({2}).requires_grad_();
  share_of_batch(torch::sum(x) / 0 * 0, 0, 3).backward();  // NaN
  EXPECT_TRUE(share_of_batch(torch::full({}, NAN), 0, 3).equal(torch::zeros({})));
  EXPECT_THROW((void)share_of_batch(x.sum(), 4, 3), UsageError);
  EXPECT_THROW((void)share_of_batch(x.sum(), -1, 3), UsageError);
  EXPECT_THROW((void)share_of_batch(x.sum(), 0, 0), UsageError);
  EXPECT_THROW((void)parts_of({.first = -1, .count = 4}, 2), UsageError);
}

}  // namespace
}  // namespace headroom::optim
