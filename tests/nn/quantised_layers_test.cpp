#include <gmock/gmock.h>
#include <torch/torch.h>

#include <nlohmann/json.hpp>

#include "headroom/base/error.h"
#include "headroom/libtorch/on.h"
#include "headroom/libtorch/stored_weight.h"
#include "headroom/nn/freeze.h"
#include "headroom/nn/layers.h"
#include "headroom/nn/lora.h"
#include "headroom/nn/quantise.h"
#include "headroom/sim/simulate.h"
#include "tests/nn/tiny_models.h"
#include "tests/nn/unpacked.h"

namespace headroom::nn {
namespace {

using kernels::Format;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using torch::Tensor;

// ---- What is quantised ----

TEST(QuantisedLayers, AreTheLinearOnesBesideHeads) {
  EXPECT_THAT(quantised_layers(tiny_model("gpt2")->module()),
              ElementsAre("transformer.h.0.attn.c_attn", "transformer.h.0.attn.c_proj",
                          "transformer.h.0.mlp.c_fc", "transformer.h.0.mlp.c_proj",
                          "transformer.h.1.attn.c_attn", "transformer.h.1.attn.c_proj",
                          "transformer.h.1.mlp.c_fc", "transformer.h.1.mlp.c_proj"));
  for (const std::string& type : model::model_types())
    for (const std::string& layer : quantised_layers(tiny_model(type)->module()))
      for (const std::string& head : usual_heads())
        EXPECT_FALSE(layer.starts_with(head + ".")) << type << ": " << layer;
}

TEST(QuantisedLayers, LeaveOutSharedOnes) {
  torch::nn::Module net;
  const auto first = net.register_module("first", std::make_shared<Linear>(4, 4));
  net.register_module("again", std::make_shared<Linear>(first->weight));
  net.register_module("other", std::make_shared<Linear>(4, 4));
  EXPECT_THAT(quantised_layers(net), ElementsAre("other"));
}

TEST(QuantisedLayers, LeaveOutTrainedOnes) {
  torch::nn::Sequential net(torch::nn::Linear(4, 4), torch::nn::Linear(4, 4));
  EXPECT_THAT(quantised_layers(*net), ElementsAre("0", "1"));
  net[1]->named_parameters()["weight"].set_requires_grad(false);
  EXPECT_THAT(quantised_layers(*net), ElementsAre("1"));
}

TEST(QuantisedLayers, AModuleWithoutOnesIsRefused) {
  EXPECT_THROW((void)quantise(tiny_model("resnet")->module()), UsageError);
}

TEST(QuantisedLayers, TakeTheBytesOfTheirFormat) {
  for (const auto& [format, most] :
       {std::pair{Format::nf4, 0.517}, {Format::int8, 1.0 + 4.0 / 1024}}) {
    Linear layer(1024, 4096, false);
    quantise(layer, {.format = format});
    std::int64_t bytes = 0;
    for (const Tensor& tensor : libtorch::memory_of(layer.weight))
      bytes += static_cast<std::int64_t>(tensor.storage().nbytes());
    EXPECT_LE(static_cast<double>(bytes), most * 1024 * 4096);
  }
}

TEST(QuantisedLayers, ArePackedAnewInAnotherFormat) {
  torch::manual_seed(1);
  Linear layer(200, 300);
  for (Tensor& parameter : layer.parameters()) parameter.detach().normal_();
  const Tensor before = layer.weight.detach().clone();
  EXPECT_EQ(quantise(layer, {.format = Format::int8}), 1U);
  EXPECT_EQ(quantise(layer, {.format = Format::int8}), 0U);
  const Tensor in_8_bit = libtorch::store_of(layer.weight)->whole(torch::kFloat);
  EXPECT_EQ(quantise(layer, {.format = Format::nf4}), 1U);
  Linear expected(200, 300);
  expected.weight.detach().copy_(in_8_bit);
  quantise(expected, {.format = Format::nf4});
  const Tensor in_4_bit = libtorch::store_of(layer.weight)->whole(torch::kFloat);
  EXPECT_TRUE(in_4_bit.equal(libtorch::store_of(expected.weight)->whole(torch::kFloat)));
  EXPECT_LE(distance({in_4_bit}, {before}), 0.1);
}

TEST(QuantisedLayers, FreezeTheirWeightsOnly) {
  Linear layer(64, 64);
  quantise(layer);
  EXPECT_FALSE(layer.weight.requires_grad());
  EXPECT_TRUE(layer.bias.requires_grad());
}

// ---- Weights without memory ----

TEST(WithoutMemory, AModelIsDrawnIntoItsPackedWeights) {
  for (const char* type : {"llama", "gpt2", "mixtral"}) {
    const auto expected = tiny_model(type);
    quantise(expected->module());
    std::shared_ptr<models::Model> model = [&] {
      const WithoutMemoryScope scope;
      return models::build(tiny_config(type));
    }();
    EXPECT_THROW((void)model->run(tiny_batch(*model)), UsageError);
    quantise(model->module());
    give_memory(model->module());
    torch::manual_seed(kTinySeed);
    models::initialise(*model);
    model->train();
    EXPECT_TRUE(
        model->run(tiny_batch(*model)).logits.equal(expected->run(tiny_batch(*expected)).logits))
        << type;
  }
}

TEST(WithoutMemory, A13BModelPeaksWhereItEnds) {
  const sim::Simulation box = sim::simulate("1x24GiB");
  const c10::Device device = box.device(0);
  const auto requested = [&] { return box.card(0).statistics().requested_bytes.all; };
  const model::ModelConfig config({{"model_type", "llama"},
                                   {"vocab_size", 32000},
                                   {"hidden_size", 5120},
                                   {"intermediate_size", 13824},
                                   {"num_hidden_layers", 40},
                                   {"num_attention_heads", 40},
                                   {"num_key_value_heads", 40},
                                   {"tie_word_embeddings", false}},
                                  "llama-2-13b");
  const auto model = [&] {
    const nn::WithoutMemoryScope scope;
    return libtorch::on(device, torch::kBFloat16, [&] { return models::build(config); });
  }();
  nn::quantise(model->module());
  nn::give_memory(model->module());
  const std::int64_t end = requested().current, some = std::int64_t{64} << 20;
  EXPECT_LE(requested().peak, end + some);
  EXPECT_LE(end, std::int64_t{7400} << 20);
  models::initialise(*model);
  EXPECT_LE(requested().peak, end + 2 * 5120 * 13824 + some) << "a layer's weight, as it is drawn";
}

// ---- Adapters ----

TEST(QuantisedLora, RefusesToMerge) {
  const auto model = tiny_model("llama");
  nn::quantise(model->module(), {.format = kernels::Format::nf4});
  nn::Lora lora = nn::add_lora(model->module(), {.rank = 16, .targets = {"all-linear"}});
  EXPECT_THAT([&] { lora.merge(); }, ThrowsMessage<UsageError>(HasSubstr("quantised")));
}

TEST(QuantisedLora, RefusesToTakeAMergeBack) {
  const auto model = tiny_model("llama");
  nn::Lora lora = nn::add_lora(model->module(), {.rank = 16, .targets = {"all-linear"}});
  lora.merge();
  nn::quantise(model->module());
  EXPECT_THAT([&] { lora.unmerge(); }, ThrowsMessage<UsageError>(HasSubstr("quantised")));
}

// ---- What is written into a quantised weight ----

TEST(QuantisedLayers, TakeTheTransposeOfAnother) {
  const auto one = std::make_shared<torch::nn::LinearImpl>(64, 64),
             other = std::make_shared<torch::nn::LinearImpl>(64, 64);
  quantise(*one);
  quantise(*other);
  const torch::NoGradGuard no_grad;
  const torch::Tensor right = other->weight.clone().to(torch::kFloat).t() * 1;
  one->weight.copy_(other->weight.t());
  EXPECT_TRUE((one->weight * 1).allclose(right, 0.2, 0.02));
  EXPECT_FALSE((one->weight * 1).allclose(right.t(), 0.2, 0.02));
  EXPECT_THROW(one->weight.copy_(torch::ones({3, 64})), c10::Error);
}

TEST(QuantisedLayers, CountThatTheyWereWritten) {
  const auto layer = std::make_shared<torch::nn::LinearImpl>(64, 64);
  for (const QuantiseOptions& options :
       {QuantiseOptions{.nested = false}, QuantiseOptions{.format = kernels::Format::int8}}) {
    layer->weight = torch::nn::Linear(64, 64)->weight;
    quantise(*layer, options);
    const torch::Tensor codes = libtorch::memory_of(layer->weight).front();
    const auto before = codes._version();
    const torch::NoGradGuard no_grad;
    layer->weight.copy_(torch::ones({64, 64}));
    EXPECT_GT(codes._version(), before);
  }
}

}  // namespace
}  // namespace headroom::nn
