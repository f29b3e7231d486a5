// Adapters in peft's files; tests/python/adapters_test.py reads and writes them with peft itself.
#include "headroom/weights/adapter_files.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "headroom/base/error.h"
#include "headroom/sim/simulate.h"
#include "tests/support/file_size_limit.h"
#include "tests/weights/adapter_net.h"
#include "tests/weights/stored_models.h"

namespace headroom::weights {
namespace {

using namespace headroom::models;

using at::Tensor;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

const std::vector<std::string> kEveryKind = {"table", "q", "inner.2", "wide", "flat"};

Tensor output_of(AdapterNet& net) {
  return net.forward(integers("tokens", {2, 7}, 0, 10));
}

Json config_in(const std::filesystem::path& folder) {
  return parse_json(read_input(folder / "adapter_config.json"), "adapter_config.json");
}

// Adapters of the net in a folder.
Tensor saved(const Folder& folder, const nn::LoraOptions& options) {
  AdapterNet net;
  const nn::Lora lora = nn::add_lora(net, options);
  fill_adapters(lora);
  save_adapter(lora, folder.path());
  return output_of(net);
}

void change(const Folder& folder, const std::string& key, const Json& value) {
  Json config = config_in(folder.path());
  config[key] = value;
  folder.write("adapter_config.json", config.dump());
}

void expect_refused(const Folder& folder, const std::string& file, const std::string& key) {
  AdapterNet net;
  EXPECT_THAT([&] { (void)load_adapter(net, folder.path()); },
              ThrowsMessage<InputError>(AllOf(HasSubstr(file), HasSubstr(key))));
  EXPECT_EQ(net.named_parameters().size(), AdapterNet().named_parameters().size()) << key;
  for (const Tensor& parameter : net.parameters()) EXPECT_TRUE(parameter.requires_grad());
}

TEST(AdapterFiles, GiveAFreshModelTheSameOutput) {
  for (const bool stabilised : {false, true}) {
    const Folder folder;
    const Tensor output = saved(
        folder, {.rank = 3, .alpha = 5, .rank_stabilised = stabilised, .targets = kEveryKind});
    AdapterNet net;
    const nn::Lora lora = load_adapter(net, folder.path());
    EXPECT_THAT(lora.layers(), ElementsAreArray(kEveryKind));
    EXPECT_TRUE(output_of(net).equal(output));
    for (const auto& [name, parameter] : lora.parameters()) EXPECT_TRUE(parameter.requires_grad());
    EXPECT_FALSE(net.q->weight.requires_grad());
  }
}

// The code of docs/guides/adapters.md, as it stands there.
TEST(AdapterFiles, AreWrittenAndReadAsTheGuideSays) {
  const Folder folder;
  const auto adapter = folder / "adapter";
  const auto model = filled(tiny_gpt2()), other = filled(tiny_gpt2());
  nn::Lora lora = nn::add_lora(model->module(), {.rank = 16, .alpha = 32, .targets = {"q", "v"}});
  std::vector<Tensor> trained;
  for (const auto& [name, parameter] : lora.parameters()) trained.push_back(parameter);
  fill_adapters(lora);
  weights::save_adapter(lora, adapter, {.base_model = "gpt2", .task_type = "CAUSAL_LM"});

  nn::Lora again = weights::load_adapter(other->module(), adapter);
  again.merge();
  weights::save(*other, folder / "merged");

  EXPECT_EQ(trained.size(), 4U);
  EXPECT_EQ(config_in(adapter)["base_model_name_or_path"], "gpt2");
  EXPECT_EQ(config_in(adapter)["task_type"], "CAUSAL_LM");
  EXPECT_EQ(config_in(adapter)["fan_in_fan_out"], true);
  const auto merged = build(tiny_gpt2());
  (void)load(*merged, folder / "merged");
  const Batch batch{.tokens = integers("tokens", {2, 5}, 0, 11)};
  model->train(false);
  merged->train(false);
  EXPECT_TRUE(merged->run(batch).logits.allclose(model->run(batch).logits, 1e-4, 1e-4));
}

TEST(AdapterFiles, AreTheSameWhileTheAdaptersAreMerged) {
  const Folder folder;
  AdapterNet net;
  nn::Lora lora = nn::add_lora(net, {.rank = 2, .targets = kEveryKind});
  fill_adapters(lora);
  save_adapter(lora, folder / "before");
  (void)output_of(net);  // shows what uses the embedding
  lora.merge();
  save_adapter(lora, folder / "merged");
  for (const char* file : {"adapter_config.json", "adapter_model.safetensors"})
    EXPECT_EQ(read_input(folder / "before" / file), read_input(folder / "merged" / file)) << file;
}

TEST(AdapterFiles, KeepTheRankAndAlphaOfEachLayer) {
  const Folder folder;
  AdapterNet net;
  const nn::Lora lora = nn::add_lora_to(net, {{"q", 2, 4}, {"inner.0", 5, 4}, {"wide", 2, 1.5}},
                                        {.rank = 2, .alpha = 4});
  fill_adapters(lora);
  save_adapter(lora, folder.path());
  EXPECT_EQ(config_in(folder.path())["rank_pattern"].dump(), R"({"^inner\\.0":5})");
  EXPECT_EQ(config_in(folder.path())["alpha_pattern"].dump(), R"({"^wide":1.5})");
  AdapterNet other;
  const std::vector<nn::LoraLayer> adapters = load_adapter(other, folder.path()).adapters();
  ASSERT_EQ(adapters.size(), 3U);
  EXPECT_EQ(adapters[1].rank, 5);
  EXPECT_EQ(adapters[2].alpha, 1.5);
  EXPECT_TRUE(output_of(other).equal(output_of(net)));
}

TEST(AdapterFiles, NameLayersByTheirLastPartWhereThatSelectsNoOther) {
  const auto targets = [](const std::vector<std::string>& patterns) {
    const Folder folder;
    const auto model = filled(tiny_llama(R"(,"num_hidden_layers":2)"));
    save_adapter(nn::add_lora(model->module(), {.targets = patterns}), folder.path());
    return config_in(folder.path())["target_modules"].dump();
  };
  EXPECT_EQ(targets({"q", "v"}), R"(["q_proj","v_proj"])");
  EXPECT_EQ(targets({"*.0.*.q_proj", "o_proj"}), R"(["model.layers.0.self_attn.q_proj","o_proj"])");
}

// peft would give both layers an adapter for the name "fc".
TEST(AdapterFiles, NameALayerByAPatternWhereItsPathEndsAnothers) {
  struct Nested : torch::nn::Module {
    Nested() {
      register_module("fc", torch::nn::Linear(3, 3));
      register_module("inner", std::make_shared<torch::nn::Module>())
          ->register_module("fc", torch::nn::Linear(3, 3));
    }
  };
  const Folder folder;
  Nested net, other;
  save_adapter(nn::add_lora_to(net, {{.name = "fc"}}), folder.path());
  EXPECT_EQ(config_in(folder.path())["target_modules"], "fc");  // a string: the whole path
  EXPECT_THAT(load_adapter(other, folder.path()).layers(), ElementsAre("fc"));
}

TEST(AdapterFiles, OfHalvesAreHalvesAndLoadAsFloatsUnlessToldOtherwise) {
  const Folder folder;
  AdapterNet net;
  net.to(at::kBFloat16);
  const nn::Lora lora = nn::add_lora(net, {.float32 = false, .targets = {"q"}});
  fill_adapters(lora);
  save_adapter(lora, folder.path());
  EXPECT_THAT(read_input(folder / "adapter_model.safetensors"), HasSubstr("\"BF16\""));
  for (const bool float32 : {true, false}) {
    AdapterNet other;
    other.to(at::kBFloat16);
    const Tensor a =
        load_adapter(other, folder.path(), {.float32 = float32}).parameters()[0].second;
    EXPECT_EQ(a.scalar_type(), float32 ? at::kFloat : at::kBFloat16);
    EXPECT_TRUE(a.to(at::kFloat).equal(lora.parameters()[0].second.to(at::kFloat)));
  }
}

TEST(AdapterFiles, LoadOntoASimulatedCard) {
  const Folder folder;
  const Tensor output = saved(folder, {.rank = 3, .targets = kEveryKind});
  const sim::Simulation box = sim::simulate("1GiB", {.mode = sim::Mode::compute});
  AdapterNet net;
  net.to(box.device(0));
  (void)load_adapter(net, folder.path());
  const Tensor there = net.forward(integers("tokens", {2, 7}, 0, 10).to(box.device(0)));
  EXPECT_TRUE(there.cpu().allclose(output));
}

// As peft saves them for adapted embeddings, in case the vocabulary has grown.
TEST(AdapterFiles, MayHaveWeightsOfBaseLayers) {
  const Folder folder;
  saved(folder, {.rank = 2, .targets = {"q"}});
  AdapterNet net, other;
  const nn::Lora lora = nn::add_lora(net, {.rank = 2, .targets = {"q"}});
  std::vector<Entry> entries = {floats("base_model.model.q.base_layer.weight", torch::eye(6))};
  for (const auto& [name, tensor] : lora.parameters()) entries.push_back(floats(name, tensor));
  folder.write("adapter_model.safetensors", file_with(entries));
  (void)load_adapter(other, folder.path());
  EXPECT_TRUE(other.q->weight.equal(torch::eye(6)));
}

// peft's usual way to train a classifier's head. It was refused, and an adapter of `headroom train`
// had its head in a file that peft does not read.
TEST(AdapterFiles, MayHaveModulesThatWereTrainedAsAWhole) {
  const Folder folder;
  AdapterNet net, other;
  const nn::Lora lora = nn::add_lora(net, {.rank = 2, .targets = {"q"}});
  fill_adapters(lora);
  AdapterInfo info{.modules = {"flat"}};
  {
    const torch::NoGradGuard no_grad;
    for (const auto& parameter : net.flat->named_parameters()) {
      parameter->mul_(2);
      info.parameters.emplace_back("flat." + parameter.key(), parameter->detach());
    }
  }
  save_adapter(lora, folder.path(), info);
  EXPECT_EQ(config_in(folder.path()).at("modules_to_save"), Json({"flat"}));
  (void)load_adapter(other, folder.path());
  EXPECT_TRUE(output_of(other).equal(output_of(net)));
  EXPECT_TRUE(other.flat->weight.requires_grad()) << "it trains further";
  EXPECT_FALSE(other.wide->weight.requires_grad());
  change(folder, "modules_to_save", {"flat", "wide"});
  expect_refused(folder, "adapter_model.safetensors",
                 "the tensor for \"base_model.model.wide.weight\"");
}

TEST(AdapterFiles, RefuseWhatWouldChangeResults) {
  const std::vector<std::pair<std::string, Json>> wrong = {{"peft_type", "IA3"},
                                                           {"use_dora", true},
                                                           {"bias", "all"},
                                                           {"modules_to_save", 3},
                                                           {"layers_to_transform", {0}},
                                                           {"init_lora_weights", "pissa"},
                                                           {"of_a_later_peft", true},
                                                           {"use_rslora", "yes"},
                                                           {"r", 0},
                                                           {"r", 2.5},
                                                           {"lora_alpha", "8"},
                                                           {"lora_dropout", 1},
                                                           {"rank_pattern", {{"q", 0}}},
                                                           {"rank_pattern", {{"q(", 2}}},
                                                           {"alpha_pattern", {1}},
                                                           {"target_modules", nullptr},
                                                           {"target_modules", {3}},
                                                           {"target_modules", "(?<=x)q"},
                                                           {"target_modules", {"other"}},
                                                           {"exclude_modules", 3}};
  for (const auto& [key, value] : wrong) {
    const Folder folder;
    saved(folder, {.targets = {"q"}});
    change(folder, key, value);
    SCOPED_TRACE(key + value.dump());
    expect_refused(folder, "adapter_config.json", key);
  }
  const Folder folder;
  expect_refused(folder, "adapter_config.json", "No such file");
  folder.write("adapter_config.json", "[]");
  expect_refused(folder, "adapter_config.json", "an object");
}

TEST(AdapterFiles, RefuseMissingAdditionalAndOtherTensors) {
  const Folder folder;
  saved(folder, {.rank = 2, .targets = {"q", "wide"}});
  const std::string weights = read_input(folder / "adapter_model.safetensors");
  const char* file = "adapter_model.safetensors";
  change(folder, "target_modules", {"q", "wide", "flat"});
  expect_refused(folder, file, "the tensor for \"base_model.model.flat.lora_A.weight\"");
  change(folder, "target_modules", {"q"});
  expect_refused(folder, file, "no tensor for \"base_model.model.wide.lora_A.weight\"");
  change(folder, "target_modules", {"q", "wide"});
  change(folder, "r", 3);
  expect_refused(folder, file, "the shape [3, 6] for \"base_model.model.q.lora_A.weight\"");
  change(folder, "r", 2);
  folder.write(file, weights.substr(0, weights.size() - 4));
  expect_refused(folder, file, "lora_B.weight");
  folder.write(
      file,
      file_with({{"base_model.model.q.lora_A.weight", "I32", {2, 6}, std::string(48, '\0')}}));
  expect_refused(folder, file, "F64, F32, F16 or BF16");
}

TEST(AdapterFiles, OldOnesStayWhenTheDiskIsFull) {
  const Folder folder;
  saved(folder, {.rank = 2, .targets = {"q"}});
  const std::string config = read_input(folder / "adapter_config.json");
  const std::string weights = read_input(folder / "adapter_model.safetensors");
  {
    const headroom::testing::FileSizeLimit limit(1000);
    EXPECT_THROW(saved(folder, {.rank = 64, .targets = {"q"}}), WriteError);
    // Small weights, and a config that is too long.
    AdapterNet net;
    const nn::Lora lora = nn::add_lora(net, {.rank = 1, .targets = {"q"}});
    EXPECT_THROW(save_adapter(lora, folder.path(), {.base_model = std::string(2000, 'x')}),
                 WriteError);
  }
  EXPECT_EQ(read_input(folder / "adapter_config.json"), config);
  EXPECT_EQ(read_input(folder / "adapter_model.safetensors"), weights);
}

TEST(AdapterFiles, AMergedModelIsSavedUnderTheHubsNamesWithoutAdapters) {
  for (const auto& config : {tiny_gpt2(), tiny_llama()}) {
    const Folder folder;
    const auto model = filled(config), loaded = build(config);
    const Batch batch{.tokens = integers("tokens", {2, 5}, 0, 11)};
    model->train(false);
    loaded->train(false);
    nn::Lora lora = nn::add_lora(model->module(), {.rank = 2, .targets = {"all-linear"}});
    fill_adapters(lora);
    lora.merge();
    save(*model, folder.path());
    const Loaded what = load(*loaded, folder.path());
    EXPECT_TRUE(what.missing.empty() && what.unexpected.empty()) << to_string(what);
    EXPECT_TRUE(loaded->run(batch).logits.equal(model->run(batch).logits));
  }
}

}  // namespace
}  // namespace headroom::weights
