#include "headroom/models/model.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "headroom/base/error.h"
#include "tests/models/tiny_models.h"

namespace headroom::models {
namespace {

using ::testing::ElementsAre;

// The last parts of the names below `path`, in the model's order.
std::vector<std::string> order_below(Model& model, const std::string& path) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : parameters_of(model))
    if (name.starts_with(path)) names.push_back(name.substr(path.size()));
  return names;
}

// Optimizers take parameters in their order, which decides which tensors are alive together.
// Mixtral's experts had w3 before w2. Orders: named_parameters() of transformers.
TEST(Parameters, ComeInTransformersOrder) {
  EXPECT_THAT(order_below(*tiny("mixtral"), "model.layers.0.block_sparse_moe."),
              ElementsAre("gate.weight", "experts.gate_up_proj", "experts.down_proj"));
  const auto older = tiny("mixtral", "{}", {.transformers = Transformers::v4_57});
  EXPECT_THAT(order_below(*older, "model.layers.0.block_sparse_moe."),
              ElementsAre("gate.weight", "experts.0.w1.weight", "experts.0.w2.weight",
                          "experts.0.w3.weight", "experts.1.w1.weight", "experts.1.w2.weight",
                          "experts.1.w3.weight"));
  EXPECT_THAT(order_below(*tiny("llama"), "model.layers.0.mlp."),
              ElementsAre("gate_proj.weight", "up_proj.weight", "down_proj.weight"));
  EXPECT_THAT(order_below(*tiny("phi3"), "model.layers.0.self_attn."),
              ElementsAre("o_proj.weight", "qkv_proj.weight"));
  EXPECT_THAT(order_below(*tiny("gpt_neo"), "transformer.h.0.attn.attention."),
              ElementsAre("k_proj.weight", "v_proj.weight", "q_proj.weight", "out_proj.weight",
                          "out_proj.bias"));
  EXPECT_THAT(
      order_below(*tiny("bert"), "cls."),
      ElementsAre("predictions.bias", "predictions.transform.dense.weight",
                  "predictions.transform.dense.bias", "predictions.transform.LayerNorm.weight",
                  "predictions.transform.LayerNorm.bias"));
}

// As torch.nn.Embedding does; some families took any number.
TEST(Build, RefusesPaddingThatIsNoTokenOfTheVocabulary) {
  for (const char* type : {"llama", "phi", "opt", "bert", "distilbert"}) {
    EXPECT_THROW(static_cast<void>(tiny(type, R"({"pad_token_id":23})")), InputError) << type;
    EXPECT_NO_THROW(static_cast<void>(tiny(type, R"({"pad_token_id":22})"))) << type;
  }
  // RoBERTa's is a position, too.
  EXPECT_THROW(static_cast<void>(tiny("roberta", R"({"pad_token_id":16})")), InputError);
  EXPECT_NO_THROW(static_cast<void>(tiny("roberta", R"({"pad_token_id":15})")));
}

TEST(Build, RefusesSettingsThatMakeNoSense) {
  for (const int every : {0, -1})
    EXPECT_THROW(static_cast<void>(build(tiny_gpt2(), {.checkpointing = {.every = every}})),
                 UsageError);
  EXPECT_THROW(static_cast<void>(build(tiny_gpt2(), {.loss_chunk = -1})), UsageError);
}

at::Tensor classes_of(const std::string& padding, const at::Tensor& tokens) {
  const auto model = build(tiny_llama(R"(,"num_labels":3,"pad_token_id":)" + padding),
                           {.task = Task::sequence_classification});
  fill(*model);
  Batch batch;
  batch.tokens = tokens;
  return model->run(batch).logits.detach();
}

// Old files say -1, which no token is: the first run was refused.
TEST(Classifiers, TakeTheLastTokenOfAllWherePaddingIsNegative) {
  const at::Tensor tokens = at::tensor({3, 4, 5, 6, 7, 8}, at::kLong).view({2, 3});
  EXPECT_TRUE(at::equal(classes_of("-1", tokens), classes_of("0", tokens)));
  EXPECT_FALSE(at::equal(classes_of("-1", tokens), classes_of("8", tokens)));
}

}  // namespace
}  // namespace headroom::models
