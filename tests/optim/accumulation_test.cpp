#include "headroom/optim/accumulation.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <nlohmann/json.hpp>

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

models::Batch rows(const models::Batch& batch, std::int64_t first, std::int64_t last) {
  models::Batch part = batch;
  for (Tensor* tensor : {&part.tokens, &part.mask, &part.labels})
    *tensor = tensor->slice(0, first, last);
  return part;
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
  for (std::int64_t row = 0; row < 6; row += 2) {
    const models::Batch part = rows(batch, row, row + 2);
    share_of_batch(model.run(part).loss, counted_labels(model, part), all).backward();
  }
  result.shares = taken_gradients(model);
  for (std::int64_t row = 2; row < 6; row += 2)
    (model.run(rows(batch, row, row + 2)).loss / 2).backward();
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

}  // namespace
}  // namespace headroom::optim
