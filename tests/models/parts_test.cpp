// Each type of model in parts, as several cards run it: loss, logits and gradients are those of the
// whole, to the bit.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <map>

#include "headroom/base/error.h"
#include "headroom/model/shapes.h"
#include "headroom/models/batch.h"
#include "headroom/models/initialise.h"
#include "headroom/nn/lora.h"
#include "tests/models/tiny_models.h"

namespace headroom::models {
namespace {

using at::Tensor;

// Three layers or more, with all that crosses a border.
constexpr const char* kKeys =
    R"({"num_hidden_layers":3,"num_layers":4,"num_decoder_layers":2,"n_layer":3,"n_layers":3,
        "attention_types":[[["global","local"],2]],"depths":[1,2,1],"num_stages":3,"hidden_sizes":[4,8,8],
        "output_router_logits":true,"sliding_window":4,"dropout":0.0,"dropout_rate":0.0,
        "attention_dropout":0.0,"hidden_dropout_prob":0.0,"attention_probs_dropout_prob":0.0,
        "attn_pdrop":0.0,"resid_pdrop":0.0,"embd_pdrop":0.0,"embed_dropout":0.0,
        "resid_dropout":0.0,"hidden_dropout":0.0,"classifier_dropout":0.0,"drop_path_rate":0.0)";

struct Kind {
  std::string type;
  Attention attention = Attention::sdpa;
  Transformers transformers = Transformers::v5;
  nn::Recompute recompute = nn::Recompute::none;
  std::string more = "}";
};

std::shared_ptr<Model> made(const Kind& kind, std::optional<Part> part = {}) {
  const auto model = tiny(kind.type, kKeys + kind.more,
                          {.attention = kind.attention,
                           .transformers = kind.transformers,
                           .checkpointing = {.how = kind.recompute},
                           .part = part});
  model->train();
  if (kind.type == "mixtral") return model;  // at::_grouped_mm has no double
  for (Tensor& one : model->module().parameters()) one.set_data(one.to(at::kDouble));
  for (Tensor& one : model->module().buffers())
    if (one.is_floating_point()) one.set_data(one.to(at::kDouble));
  return model;
}

using Named = std::map<std::string, Tensor>;

void add(Named& all, Model& model) {
  for (const auto& [name, parameter] : parameters_of(model)) {
    const Tensor gradient = parameter.grad();
    if (!gradient.defined()) continue;
    Tensor& sum = all[name];
    sum = sum.defined() ? gradient + sum : gradient;
  }
}

void expect_parts_to_equal_the_whole(const Kind& kind, std::int64_t parts) {
  SCOPED_TRACE(kind.type + " in " + std::to_string(parts) + " parts");
  torch::manual_seed(1);
  const auto whole = made(kind);
  initialise(*whole);
  Batch batch = random_batch(*whole, {.rows = 2, .length = 8, .image = 16}, at::kCPU);
  if (batch.pixels.defined()) batch.pixels = batch.pixels.to(at::kDouble);
  Named expected, found;
  const Output right = whole->run(batch);
  right.loss.backward();
  add(expected, *whole);

  const std::int64_t layers = model::layer_count(whole->config());
  std::vector<std::shared_ptr<Model>> models;
  std::vector<std::vector<Tensor>> handed_on, given;
  Output output;
  std::set<std::string> names;
  for (std::int64_t i = 0, first = 0; i < parts; ++i) {
    const std::int64_t count = layers / parts + (i < layers % parts ? 1 : 0);
    torch::manual_seed(1);
    models.push_back(made(kind, Part{first, count}));
    first += count;
    initialise(*models.back());  // the values of the whole, by name
    Batch rows = batch;
    if (i > 0)
      for (const Tensor& one : handed_on.back())
        rows.given.push_back(one.defined() ? one.detach().requires_grad_(one.requires_grad())
                                           : Tensor());
    given.push_back(rows.given);
    output = models.back()->run(rows);
    handed_on.push_back(output.handed_on);
    EXPECT_EQ(output.handed_on.empty(), i + 1 == parts);
    EXPECT_EQ(output.loss.defined(), i + 1 == parts);
    for (const auto& [name, parameter] : parameters_of(*models.back())) names.insert(name);
  }
  std::set<std::string> of_whole;
  for (const auto& [name, parameter] : parameters_of(*whole)) of_whole.insert(name);
  EXPECT_EQ(names, of_whole);
  EXPECT_TRUE(output.loss.equal(right.loss)) << output.loss << " for " << right.loss;
  EXPECT_TRUE(output.logits.equal(right.logits));

  output.loss.backward();
  for (auto i = static_cast<std::size_t>(parts); i-- > 0;) {
    if (i + 1 < static_cast<std::size_t>(parts)) {
      std::vector<Tensor> roots, gradients;
      for (std::size_t t = 0; t < handed_on[i].size(); ++t) {
        const Tensor& one = handed_on[i][t];
        if (!one.defined() || !one.requires_grad() || !given[i + 1][t].grad().defined()) continue;
        roots.push_back(one);
        gradients.push_back(given[i + 1][t].grad());
      }
      torch::autograd::backward(roots, gradients);
    }
    add(found, *models[i]);
  }
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [name, gradient] : expected)
    EXPECT_TRUE(found.at(name).equal(gradient))
        << name << ", " << (found.at(name) - gradient).abs().max().item<double>();
}

class Parts : public ::testing::TestWithParam<std::string> {};

TEST_P(Parts, AreTheWholeToTheBit) {
  for (const std::int64_t parts : {2, 3}) {
    for (const Transformers version : {Transformers::v5, Transformers::v4_57})
      for (const Attention attention : {Attention::sdpa, Attention::eager})
        expect_parts_to_equal_the_whole({GetParam(), attention, version}, parts);
    for (const char* const tied :
         {R"(,"tie_word_embeddings":true})", R"(,"tie_word_embeddings":false})"})
      expect_parts_to_equal_the_whole({.type = GetParam(), .more = tied}, parts);
    for (const auto how : {nn::Recompute::nonreentrant, nn::Recompute::reentrant})
      expect_parts_to_equal_the_whole({.type = GetParam(), .recompute = how}, parts);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Parts, ::testing::ValuesIn(model::model_types()),
                         [](const auto& type) { return type.param; });

TEST(Part, MustBeOfTheModelsLayers) {
  for (const Part part : {Part{0, 0}, Part{-1, 1}, Part{0, 4}, Part{3, 1}})
    EXPECT_THROW(made({.type = "llama"}, part), UsageError);
}

TEST(Part, HasTheAdaptersOfTheWhole) {
  const auto adapters = [](std::optional<Part> part) {
    const auto model = made({.type = "llama"}, part);
    torch::manual_seed(1);
    return nn::add_lora(model->module(), {.rank = 2}).parameters();
  };
  std::map<std::string, Tensor> whole;
  for (const auto& [name, tensor] : adapters({})) whole[name] = tensor;
  std::size_t found = 0;
  for (const Part part : {Part{0, 1}, Part{1, 2}})
    for (const auto& [name, tensor] : adapters(part)) {
      EXPECT_TRUE(tensor.equal(whole.at(name))) << name;
      ++found;
    }
  EXPECT_EQ(found, whole.size());
}

// Neither layers nor embeddings of other parts take memory.
TEST(Part, HasItsOwnParametersOnly) {
  const auto names = [](const Part& part) {
    std::vector<std::string> all;
    const auto model = made({.type = "llama", .more = R"(,"tie_word_embeddings":false})"}, part);
    for (const auto& [name, parameter] : parameters_of(*model)) all.push_back(name);
    return all;
  };
  using ::testing::Contains;
  using ::testing::Each;
  using ::testing::StartsWith;
  EXPECT_THAT(names({1, 1}), Each(StartsWith("model.layers.1.")));
  EXPECT_THAT(names({0, 1}), Contains("model.embed_tokens.weight"));
  EXPECT_THAT(names({2, 1}), Contains("lm_head.weight"));
  EXPECT_THAT(names({2, 1}), Contains("model.norm.weight"));
}

}  // namespace
}  // namespace headroom::models
