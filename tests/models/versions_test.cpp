// The code that follows transformers 5 beside that of 4.57, which transformers_numbers_test.cpp
// holds against Python: other operations and another order, the same results.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "headroom/model/tasks.h"
#include "headroom/models/batch.h"
#include "headroom/models/initialise.h"
#include "headroom/weights/safetensors.h"
#include "tests/models/tiny_models.h"
#include "tests/support/temporary_folder.h"

namespace headroom::models {
namespace {

using at::Tensor;

struct Form {
  Task task;
  Attention attention;
  bool has_mask, padded;
};

// BERT predicts the next token only as a decoder.
std::string more_for(const Form& form) {
  return form.task == Task::causal_lm ? R"({"is_decoder":true})" : "{}";
}

std::vector<Form> forms_of(const model::ModelConfig& config) {
  std::vector<Form> forms;
  for (const Task task : model::tasks_of(config))
    for (const Attention attention : {Attention::sdpa, Attention::eager})
      for (const auto& [has_mask, padded] : {std::pair(false, false), {true, false}, {true, true}})
        forms.push_back({task, attention, has_mask, padded});
  return forms;
}

Batch batch_for(const Model& model, const Form& form) {
  Batch batch = random_batch(
      model,
      {.rows = 2, .length = 8, .mask = form.has_mask ? model::Mask::ones : model::Mask::none},
      at::kCPU);
  if (!form.padded || !batch.mask.defined()) return batch;
  batch.mask[1].slice(0, 6).zero_();
  batch.mask_is_all_ones = false;
  return batch;
}

struct Result {
  double loss;
  double gradients;  // the sum of their squares
};

Result result_of(Model& model, const Batch& batch) {
  model.train(false);
  const Tensor loss = model.run(batch).loss;
  loss.backward();
  Result result{loss.item<double>(), 0};
  for (const Tensor& parameter : model.module().parameters())
    if (parameter.grad().defined())
      result.gradients += parameter.grad().to(at::kDouble).pow(2).sum().item<double>();
  return result;
}

class Versions : public ::testing::TestWithParam<std::string> {};

TEST_P(Versions, ComputeTheSameFromTheSameCheckpoint) {
  const headroom::testing::TemporaryFolder folder;
  for (const Form& form : forms_of(tiny(GetParam())->config())) {
    const auto made = [&](Transformers version) {
      return tiny(GetParam(), more_for(form),
                  {.task = form.task, .attention = form.attention, .transformers = version});
    };
    at::manual_seed(7);
    const auto older = made(Transformers::v4_57), newest = made(Transformers::v5);
    initialise(*older);
    weights::save(*older, folder.path() / "weights.safetensors");
    const weights::Loaded loaded = weights::load(*newest, folder.path() / "weights.safetensors");
    EXPECT_TRUE(loaded.missing.empty() && loaded.unexpected.empty()) << to_string(loaded);
    const Batch batch = batch_for(*older, form);
    const Result before = result_of(*older, batch), now = result_of(*newest, batch);
    const std::string where = std::string(to_string(form.task)) + ", " +
                              std::string(to_string(form.attention)) +
                              (form.padded     ? ", padded"
                               : form.has_mask ? ", masked"
                                               : "");
    EXPECT_NEAR(now.loss, before.loss, 1e-5 * std::abs(before.loss)) << where;
    EXPECT_NEAR(now.gradients, before.gradients, 1e-4 * before.gradients) << where;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Versions, ::testing::ValuesIn(model::model_types()),
                         [](const auto& instance) { return instance.param; });

// What the newest version writes, the older one reads: the experts' weights one by one.
TEST(Versions, WriteCheckpointsForEachOther) {
  const headroom::testing::TemporaryFolder folder;
  const auto newest = tiny("mixtral"),
             older = tiny("mixtral", "{}", {.transformers = Transformers::v4_57});
  initialise(*newest);
  weights::save(*newest, folder.path() / "weights.safetensors");
  const weights::Loaded loaded = weights::load(*older, folder.path() / "weights.safetensors");
  EXPECT_TRUE(loaded.missing.empty() && loaded.unexpected.empty()) << to_string(loaded);
  const Batch batch = random_batch(*newest, {.rows = 2, .length = 8}, at::kCPU);
  EXPECT_NEAR(result_of(*newest, batch).loss, result_of(*older, batch).loss, 1e-5);
}

}  // namespace
}  // namespace headroom::models
