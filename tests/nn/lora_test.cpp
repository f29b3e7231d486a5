#include "headroom/nn/lora.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "headroom/base/error.h"
#include "headroom/libtorch/on.h"
#include "headroom/nn/layers.h"
#include "headroom/sim/simulate.h"
#include "tests/nn/tiny_models.h"

namespace headroom::nn {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;
using ::testing::SizeIs;

std::vector<std::string> trained(const torch::nn::Module& module) {
  std::vector<std::string> names;
  for (const auto& item : module.named_parameters())
    if (item.value().requires_grad()) names.push_back(item.key());
  return names;
}

// B starts at zero; now it counts.
void fill(const Lora& lora) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(5);
  for (auto [name, parameter] : lora.parameters()) parameter.normal_(0, 0.3);
}

struct OneLayer : torch::nn::Module {
  OneLayer() {
    const torch::NoGradGuard no_grad;
    torch::manual_seed(3);
    plain = register_module("plain", std::make_shared<Linear>(6, 4));
    turned = register_module("turned", std::make_shared<Conv1D>(6, 4));
    for (Tensor& parameter : parameters()) parameter.normal_();
  }
  std::shared_ptr<Linear> plain;
  std::shared_ptr<Conv1D> turned;
};

TEST(Lora, TakesQueriesAndValuesByTheirNamesInEachFamily) {
  const auto layers = [](const std::string& type) {
    return add_lora(tiny_model(type)->module()).layers();
  };
  EXPECT_THAT(layers("llama"),
              ElementsAre("model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.v_proj",
                          "model.layers.1.self_attn.q_proj", "model.layers.1.self_attn.v_proj"));
  EXPECT_THAT(layers("gpt2"),
              ElementsAre("transformer.h.0.attn.c_attn", "transformer.h.1.attn.c_attn"));
  EXPECT_THAT(layers("gpt_neox"), ElementsAre("gpt_neox.layers.0.attention.query_key_value",
                                              "gpt_neox.layers.1.attention.query_key_value"));
  EXPECT_THAT(layers("phi3"), ElementsAre("model.layers.0.self_attn.qkv_proj",
                                          "model.layers.1.self_attn.qkv_proj"));
  EXPECT_THAT(layers("bert"),
              IsSupersetOf<std::string>({"bert.encoder.layer.0.attention.self.query",
                                         "bert.encoder.layer.0.attention.self.value"}));
  EXPECT_THAT(layers("distilbert"),
              IsSupersetOf<std::string>({"distilbert.transformer.layer.1.attention.q_lin",
                                         "distilbert.transformer.layer.1.attention.v_lin"}));
  EXPECT_THAT(layers("t5"),
              IsSupersetOf<std::string>({"encoder.block.0.layer.0.SelfAttention.q",
                                         "decoder.block.1.layer.1.EncDecAttention.v"}));
  for (const char* type : {"opt", "gpt_neo", "phi", "gemma2", "mixtral", "vit", "roberta"})
    EXPECT_THAT(layers(type), SizeIs(4)) << type;
}

TEST(Lora, PatternsAreNamesEndingsAndGlobs) {
  const auto layers = [](std::vector<std::string> targets) {
    return add_lora(tiny_model("llama")->module(), {.targets = std::move(targets)}).layers();
  };
  EXPECT_THAT(layers({"up_proj"}),
              ElementsAre("model.layers.0.mlp.up_proj", "model.layers.1.mlp.up_proj"));
  EXPECT_THAT(layers({"0.mlp.up_proj"}), ElementsAre("model.layers.0.mlp.up_proj"));
  EXPECT_THAT(layers({"*.1.*k_pro?"}), ElementsAre("model.layers.1.self_attn.k_proj"));
  EXPECT_THAT(layers({"q", "o"}),
              ElementsAre("model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.o_proj",
                          "model.layers.1.self_attn.q_proj", "model.layers.1.self_attn.o_proj"));
  EXPECT_THAT(layers({"lm_head"}), ElementsAre("lm_head"));
  const std::vector<std::string> all = layers({"all-linear"});
  EXPECT_THAT(all, SizeIs(14));
  EXPECT_THAT(all, Not(Contains("lm_head")));
}

TEST(Lora, AnUnknownTargetIsRefusedWithTheKnownOnes) {
  const auto model = tiny_model("gpt2");
  try {
    (void)add_lora(model->module(), {.targets = {"c_attn", "proj_q"}});
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("'proj_q'"));
    EXPECT_THAT(error.what(), HasSubstr("c_attn, c_proj, c_fc, lm_head"));
  }
  EXPECT_FALSE(trained(model->module()).empty());  // nothing was touched
}

TEST(Lora, AModelWithoutQueriesIsRefused) {
  try {
    (void)add_lora(tiny_model("resnet")->module());
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("'q'; try classifier.1"));
  }
}

TEST(Lora, RefusesASecondAdapterAndNumbersThatMakeNoSense) {
  const auto model = tiny_model("llama");
  (void)add_lora(model->module());
  EXPECT_THROW((void)add_lora(model->module()), UsageError);
  EXPECT_THROW((void)add_lora(tiny_model("llama")->module(), {.rank = 0}), UsageError);
  EXPECT_THROW((void)add_lora(tiny_model("llama")->module(), {.dropout = 1}), UsageError);
  EXPECT_THROW((void)add_lora(tiny_model("llama")->module(), {.targets = {}}), UsageError);
}

TEST(Lora, ChangesNothingAtFirst) {
  for (const char* type : {"llama", "gpt2", "bert", "t5", "vit"}) {
    const auto model = tiny_model(type);
    const models::Batch batch = tiny_batch(*model);
    const Tensor before = model->run(batch).logits;
    (void)add_lora(model->module(), {.dropout = 0.5});
    // T5's bias needs no gradient any more, and another kernel adds in another order.
    EXPECT_TRUE(
        at::allclose(model->run(batch).logits, before, 0, std::string(type) == "t5" ? 1e-5 : 0))
        << type;
  }
}

TEST(Lora, AddsTheProductOfItsMatricesTimesAlphaOverRank) {
  OneLayer net;
  const Tensor x = torch::randn({5, 6});
  const Tensor plain = (*net.plain)(x), turned = (*net.turned)(x);
  const Lora lora = add_lora(net, {.rank = 2, .alpha = 3, .targets = {"plain", "turned"}});
  fill(lora);
  const auto added = [&](const torch::nn::Module& layer) {
    const auto named = layer.named_parameters();
    return torch::mm(torch::mm(x, named["lora_A.weight"].t()), named["lora_B.weight"].t()) * 1.5;
  };
  EXPECT_TRUE(torch::allclose((*net.plain)(x), plain + added(*net.plain)));
  EXPECT_TRUE(torch::allclose((*net.turned)(x), turned + added(*net.turned)));
}

TEST(Lora, TrainsItsMatricesAlone) {
  const auto model = tiny_model("gpt2");
  const Lora lora = add_lora(model->module(), {.rank = 2});
  EXPECT_THAT(trained(model->module()), ElementsAre("transformer.h.0.attn.c_attn.lora_A.weight",
                                                    "transformer.h.0.attn.c_attn.lora_B.weight",
                                                    "transformer.h.1.attn.c_attn.lora_A.weight",
                                                    "transformer.h.1.attn.c_attn.lora_B.weight"));
  fill(lora);
  model->run(tiny_batch(*model)).loss.backward();
  for (const Tensor& parameter : model->module().parameters()) {
    EXPECT_EQ(parameter.grad().defined(), parameter.requires_grad());
    if (parameter.requires_grad()) {
      EXPECT_GT(parameter.grad().abs().sum().item<double>(), 0);
    }
  }
}

// The names in adapter_model.safetensors of peft 0.18.
TEST(Lora, ItsParametersAreCalledAsInPeftsFiles) {
  const auto model = tiny_model("llama");
  const auto parameters = add_lora(model->module(), {.rank = 4}).parameters();
  ASSERT_THAT(parameters, SizeIs(8));
  EXPECT_EQ(parameters[2].first, "base_model.model.model.layers.0.self_attn.v_proj.lora_A.weight");
  EXPECT_THAT(parameters[2].second.sizes(), ElementsAre(4, 16));
  EXPECT_EQ(parameters[3].first, "base_model.model.model.layers.0.self_attn.v_proj.lora_B.weight");
  EXPECT_THAT(parameters[3].second.sizes(), ElementsAre(8, 4));  // one head of keys and values
}

TEST(Lora, MergesIntoTheWeightsAndTakesItOffAgain) {
  for (const char* type : {"llama", "gpt2"}) {
    const auto model = tiny_model(type);
    const models::Batch batch = tiny_batch(*model);
    std::vector<Tensor> weights;
    for (const Tensor& parameter : model->module().parameters())
      weights.push_back(parameter.detach().clone());
    const Tensor without = model->run(batch).logits.detach();
    Lora lora = add_lora(model->module(), {.rank = 2});
    fill(lora);
    const Tensor beside = model->run(batch).logits.detach();
    EXPECT_FALSE(torch::allclose(beside, without, 0, 1e-3));

    lora.merge();
    lora.merge();
    EXPECT_TRUE(lora.merged());
    EXPECT_TRUE(torch::allclose(model->run(batch).logits, beside, 1e-4, 1e-5)) << type;

    lora.unmerge();
    EXPECT_FALSE(lora.merged());
    EXPECT_TRUE(torch::allclose(model->run(batch).logits, beside, 1e-4, 1e-5)) << type;
    std::size_t i = 0;
    for (const auto& item : model->module().named_parameters())
      if (item.key().find("lora") == std::string::npos) {
        EXPECT_TRUE(torch::allclose(item.value(), weights[i++], 0, 1e-6)) << item.key();
      }
  }
}

// The head's product once went into the embedding, too.
TEST(Lora, IsNotMergedIntoAWeightThatAnEmbeddingUses) {
  const auto model = tiny_model("gpt2");
  const models::Batch batch = tiny_batch(*model);
  Lora lora = add_lora(model->module(), {.targets = {"lm_head", "c_attn"}});
  fill(lora);
  const Tensor beside = model->run(batch).logits;
  EXPECT_THROW(lora.merge(), UsageError);
  EXPECT_FALSE(lora.merged());
  EXPECT_TRUE(model->run(batch).logits.equal(beside));
}

TEST(Lora, IsScaledByTheRootOfTheRankIfRankStabilised) {
  const Tensor x = torch::randn({5, 6});
  const auto added = [&](const LoraOptions& options) {
    OneLayer net;
    const Tensor before = (*net.plain)(x);
    fill(add_lora(net, options));
    return (*net.plain)(x)-before;
  };
  const Tensor plain = added({.rank = 4, .alpha = 8, .targets = {"plain"}});
  const Tensor stabilised =
      added({.rank = 4, .alpha = 8, .rank_stabilised = true, .targets = {"plain"}});
  EXPECT_TRUE(at::allclose(stabilised, 2 * plain, 1e-4, 1e-5));
}

TEST(Lora, TakesItsOwnRankAndAlphaForEachLayer) {
  OneLayer net;
  const std::vector<LoraLayer> layers = {{"turned", 3, 1}, {"plain", 5, 2}};
  const auto sizes = lora_sizes(net, layers);
  EXPECT_FALSE(trained(net).empty());  // nothing was touched
  const auto parameters = add_lora_to(net, layers).parameters();
  ASSERT_THAT(parameters, SizeIs(4));
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(parameters[i].first, sizes[i].first);
    EXPECT_EQ(parameters[i].second.sizes(), at::IntArrayRef(sizes[i].second));
  }
  EXPECT_THAT(sizes[2].second, ElementsAre(5, 6));
  EXPECT_THROW((void)add_lora_to(net, {}), UsageError);
  EXPECT_THROW((void)add_lora_to(net, {{.name = "lain"}}), UsageError);
}

TEST(Lora, AdaptersOfHalfPrecisionWeightsAreFloatUnlessToldOtherwise) {
  for (const bool in_float : {true, false}) {
    const auto net =
        libtorch::on(at::kCPU, at::kBFloat16, [] { return std::make_shared<OneLayer>(); });
    const Lora lora = add_lora(*net, {.float32 = in_float, .targets = {"plain", "turned"}});
    for (const auto& [name, parameter] : lora.parameters())
      EXPECT_EQ(parameter.scalar_type(), in_float ? at::kFloat : at::kBFloat16) << name;
    const Tensor x = torch::randn({5, 6}).to(at::kBFloat16);
    EXPECT_EQ((*net->plain)(x).scalar_type(), at::kBFloat16);
    EXPECT_EQ((*net->turned)(x).scalar_type(), at::kBFloat16);
  }
}

TEST(Lora, DropsOnlyWhileTraining) {
  OneLayer net;
  const Tensor x = torch::randn({5, 6});
  fill(add_lora(net, {.dropout = 0.5, .targets = {"plain"}}));
  EXPECT_FALSE(torch::allclose((*net.plain)(x), (*net.plain)(x)));
  net.eval();
  EXPECT_TRUE((*net.plain)(x).equal((*net.plain)(x)));
}

// Without it, the reentrant form gives no gradient: no input of a layer needs one.
TEST(Lora, TrainsUnderBothKindsOfCheckpointing) {
  for (const char* type : {"llama", "gpt2", "bert", "t5", "opt", "vit"}) {
    std::vector<Tensor> plain;
    for (const Recompute how : {Recompute::none, Recompute::nonreentrant, Recompute::reentrant}) {
      const auto model = tiny_model(type, {.checkpointing = {.how = how}});
      const Lora lora = add_lora(model->module(), {.rank = 2});
      fill(lora);
      if (how != Recompute::none) require_input_gradients(model->module());
      model->run(tiny_batch(*model)).loss.backward();
      std::size_t i = 0;
      for (const auto& [name, parameter] : lora.parameters()) {
        ASSERT_TRUE(parameter.grad().defined()) << name;
        if (how == Recompute::none) {
          plain.push_back(parameter.grad());
          continue;
        }
        // Not number by number: sums that cancel out are rounded by what they add up.
        const Tensor& expected = plain[i++];
        const double apart = (parameter.grad() - expected).norm().item<double>();
        EXPECT_LE(apart, 1e-5 * expected.norm().item<double>()) << type << ' ' << name;
      }
    }
  }
}

TEST(RequireInputGradients, RefusesAModelWithoutABeginning) {
  OneLayer net;
  EXPECT_THROW(require_input_gradients(net), UsageError);
}

TEST(Lora, IsTheSameOnASimulatedCard) {
  const sim::Simulation box = sim::simulate("1x1GiB", {.mode = sim::Mode::compute});
  const auto there = tiny_model("llama", {}, box.device(0)), here = tiny_model("llama");
  const Lora on_card = add_lora(there->module()), on_cpu = add_lora(here->module());
  fill(on_cpu);
  for (std::size_t i = 0; i < on_cpu.parameters().size(); ++i) {
    EXPECT_EQ(on_card.parameters()[i].second.device(), box.device(0));
    const torch::NoGradGuard no_grad;
    on_card.parameters()[i].second.copy_(on_cpu.parameters()[i].second);
  }
  const Tensor loss = there->run(tiny_batch(*there, box.device(0))).loss;
  EXPECT_NEAR(loss.item<double>(), here->run(tiny_batch(*here)).loss.item<double>(), 1e-5);
}

// By hand, in bfloat16: 256 x 1024 inputs and outputs of half a MiB each.
TEST(Lora, KeepsItsInputAndTheSmallProductForTheBackwardPass) {
  const sim::Simulation box = sim::simulate("1x1GiB");
  const auto kept = [&](const LoraOptions& options) {
    const auto layer =
        libtorch::on(box.device(0), at::kBFloat16, [] { return std::make_shared<List<Linear>>(); });
    libtorch::on(box.device(0), at::kBFloat16,
                 [&] { layer->add(std::make_shared<Linear>(1024, 1024, false)); });
    (void)add_lora(*layer, options);
    Tensor x = torch::empty({256, 1024}, torch::dtype(at::kBFloat16).device(box.device(0)));
    const auto current = [&] { return box.card(0).statistics().allocated_bytes.all.current; };
    Tensor y = (*(*layer)[0])(x);
    x.reset();
    const std::int64_t with_graph = current();
    y = y.detach();
    return with_graph - current();
  };
  constexpr std::int64_t kHalf = 2, kFloat = 4, kStates = 256 * 1024, kSmall = 256 * 16;
  const LoraOptions as_weights{.rank = 16, .float32 = false, .targets = {"0"}};
  EXPECT_EQ(kept(as_weights), kHalf * (kStates + kSmall));
  EXPECT_EQ(kept({.rank = 16, .targets = {"0"}}), kHalf * kStates + kFloat * kSmall);
  const LoraOptions like_peft{.rank = 16, .keeps_input_once = false, .targets = {"0"}};
  EXPECT_EQ(kept(like_peft), kFloat * (kStates + kSmall));
}

}  // namespace
}  // namespace headroom::nn
