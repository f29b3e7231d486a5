#include "headroom/weights/safetensors.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <torch/torch.h>

#include <fstream>

#include "headroom/base/error.h"
#include "headroom/libtorch/on.h"
#include "headroom/models/initialise.h"
#include "headroom/nn/lora.h"
#include "headroom/sim/simulate.h"
#include "tests/support/garbage.h"
#include "tests/weights/stored_models.h"

namespace headroom::weights {
namespace {

using namespace headroom::models;

namespace fs = std::filesystem;
using namespace literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// ---- There and back ----

class RoundTrip : public ::testing::TestWithParam<std::int64_t> {};

TEST_P(RoundTrip, GivesTheSameWeights) {
  const Folder folder;
  for (const auto& config :
       {tiny_gpt2(), tiny_bert(), tiny_resnet(), tiny_llama(R"(,"tie_word_embeddings":true)")}) {
    const auto model = filled(config), other = build(config);
    save(*model, folder / config.type(), {.shard = Bytes{GetParam()}});
    const Loaded loaded = load(*other, folder / config.type());
    expect_equal(*model, *other);
    EXPECT_THAT(loaded.missing, IsEmpty());
    EXPECT_THAT(loaded.unexpected, IsEmpty());
  }
}

INSTANTIATE_TEST_SUITE_P(InOneFileAndInMany, RoundTrip, ::testing::Values(1, 1024, 5'000'000'000));

TEST(Save, PutsTiedWeightsThereOnceAndNoFixedBuffers) {
  const Folder folder;
  const auto model = filled(tiny_gpt2());
  save(*model, folder / "gpt2.safetensors");
  const std::string content = read_input(folder / "gpt2.safetensors");
  EXPECT_THAT(content, HasSubstr("\"transformer.wte.weight\""));
  EXPECT_THAT(content, Not(HasSubstr("lm_head")));
  EXPECT_THAT(content, Not(HasSubstr(".attn.bias\"")));
  EXPECT_THAT(content, Not(HasSubstr("masked_bias")));
}

TEST(Save, KeepsWhatBatchNormsHaveCounted) {
  const Folder folder;
  const auto model = filled(tiny_resnet()), other = build(tiny_resnet());
  const std::string norm = "resnet.embedder.embedder.normalization.";
  model->module().named_buffers()[norm + "running_mean"].fill_(3);
  model->module().named_buffers()[norm + "num_batches_tracked"].fill_(7);
  save(*model, folder.path());
  load(*other, folder.path());
  EXPECT_EQ(other->module().named_buffers()[norm + "running_mean"][1].item<double>(), 3);
  EXPECT_EQ(other->module().named_buffers()[norm + "num_batches_tracked"].item<int>(), 7);
}

TEST(Save, LeavesAdaptersOut) {
  const Folder folder;
  const auto model = filled(tiny_gpt2()), other = build(tiny_gpt2());
  static_cast<void>(nn::add_lora(model->module(), {.rank = 2, .targets = {"c_attn"}}));
  save(*model, folder.path());
  EXPECT_THAT(load(*other, folder.path()).unexpected, IsEmpty());
  const Loaded again = load(*model, folder.path());
  EXPECT_THAT(again.missing, IsEmpty());
  initialise(*model);
}

TEST(Save, ReplacesTheFormerWeightsOfAFolderAndNothingElse) {
  const Folder folder;
  const auto model = filled(tiny_gpt2());
  folder.write("config.json", "{}");
  save(*model, folder.path(), {.shard = 1_KiB});
  EXPECT_TRUE(fs::exists(folder / "model.safetensors.index.json"));
  EXPECT_FALSE(fs::exists(folder / "model.safetensors"));
  save(*model, folder.path());
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder.path()))
    names.push_back(entry.path().filename());
  EXPECT_THAT(names, ::testing::UnorderedElementsAre("config.json", "model.safetensors"));
}

TEST(Save, RefusesAnUnwritablePath) {
  const Folder folder;
  const auto model = filled(tiny_gpt2());
  const fs::path file = folder.write("file", "x");
  EXPECT_THROW(save(*model, file / "below"), WriteError);
  EXPECT_THROW(save(*model, folder / "no/such/folder/x.safetensors"), WriteError);
}

// ---- Types and devices ----

TEST(Load, ConvertsToTheTypeOfTheModel) {
  const Folder folder;
  const auto model = filled(tiny_gpt2()), other = build(tiny_gpt2());
  for (const at::ScalarType type : {at::kDouble, at::kHalf, at::kFloat}) {
    const auto stored = libtorch::on(at::kCPU, type, [] { return build(tiny_gpt2()); });
    fill(*stored);
    save(*stored, folder.path());
    initialise(*other);
    load(*other, folder.path());
    expect_equal(*model, *other);
  }
  const auto half = libtorch::on(at::kCPU, at::kBFloat16, [] { return build(tiny_gpt2()); });
  load(*half, folder.path());
  const std::string name = "transformer.h.0.mlp.c_fc.weight";
  EXPECT_TRUE(at::equal(parameter_of(*half, name), parameter_of(*model, name).to(at::kBFloat16)));
}

TEST(Load, PutsWeightsOnASimulatedCardAndBack) {
  const Folder folder;
  const auto box = sim::simulate("1x1GiB", {.mode = sim::Mode::compute});
  const auto model = filled(tiny_resnet());
  save(*model, folder / "a");
  const auto there = libtorch::on(box.device(0), [&] {
    auto made = build(tiny_resnet());
    load(*made, folder / "a");
    return made;
  });
  EXPECT_EQ(parameters_of(*there).front().second.device(), box.device(0));
  expect_equal(*model, *there);
  libtorch::on(box.device(0), [&] { save(*there, folder / "b"); });
  EXPECT_EQ(read_input(folder / "a/model.safetensors"), read_input(folder / "b/model.safetensors"));
}

// A weight that is not contiguous was an error of LibTorch.
TEST(Load, FillsWeightsThatLieChannelsLast) {
  const Folder folder;
  const auto model = filled(tiny_resnet()), other = build(tiny_resnet());
  save(*model, folder / "a.safetensors");
  for (at::Tensor& each : other->module().parameters())
    if (each.dim() == 4) each.set_data(each.detach().contiguous(at::MemoryFormat::ChannelsLast));
  load(*other, folder / "a.safetensors");
  expect_equal(*model, *other);
  save(*other, folder / "b.safetensors");
  EXPECT_EQ(read_input(folder / "a.safetensors"), read_input(folder / "b.safetensors"));
}

// 64 MiB in the file, 32 on the card.
model::ModelConfig large_gpt2() {
  return config_from(R"({"model_type":"gpt2","vocab_size":32000,"n_positions":8,"n_embd":512,
                         "n_layer":1,"n_head":8,"n_inner":8})");
}

TEST(Load, NeedsNoSecondCopyOnTheCard) {
  const Folder folder;
  const auto box = sim::simulate("1x1GiB", {.mode = sim::Mode::compute});
  save(*build(large_gpt2()), folder.path());
  const auto there = libtorch::on(box.device(0), at::kHalf, [] { return build(large_gpt2()); });
  box.card(0).reset_peaks();
  const auto before = box.card(0).statistics().allocated_bytes.all.current;
  EXPECT_GT(before, (32_MiB).count);
  load(*there, folder.path());
  EXPECT_LE(box.card(0).statistics().allocated_bytes.all.peak, before + (5_MiB).count);
}

// Floats need no place that four divides: early files have heads of any length.
TEST(Load, ReadsFloatsFromUnalignedOffsets) {
  const Folder folder;
  const auto model = filled(tiny_gpt2()), other = build(tiny_gpt2());
  std::vector<Entry> entries = {{"odd", "U8", {3}, "abc"}};
  for (Entry& each : entries_of(*model, same)) entries.push_back(std::move(each));
  const auto path = folder.write("x.safetensors", file_with(entries));
  EXPECT_THAT(load(*other, path).unexpected, ElementsAre("odd"));
  expect_equal(*model, *other);
}

// ---- Names ----

TEST(Load, TakesABaseModelsNamesWithoutThePrefix) {
  const Folder folder;
  const auto model = filled(tiny_gpt2()), other = build(tiny_gpt2());
  auto entries = entries_of(*model, [](const std::string& name) {
    return name.substr(std::string("transformer.").size());
  });
  entries.push_back(floats("h.0.attn.bias", at::ones({1, 1, 6, 6})));
  entries.push_back(floats("h.1.attn.masked_bias", at::zeros({})));
  const Loaded loaded = load(*other, folder.write("x.safetensors", file_with(entries)));
  expect_equal(*model, *other);
  EXPECT_THAT(loaded.missing, IsEmpty());
  EXPECT_THAT(loaded.unexpected, IsEmpty());
}

TEST(Load, InitialisesAHeadThatTheFileLacksAndSaysSo) {
  const Folder folder;
  const auto base = filled(tiny_bert(), {.task = Task::masked_lm});
  save(*base, folder.path());
  const auto model = build(tiny_bert(), {.task = Task::sequence_classification});
  parameter_of(*model, "classifier.bias").detach().fill_(5);
  const Loaded loaded = load(*model, folder.path());
  EXPECT_THAT(loaded.missing,
              ::testing::UnorderedElementsAre("bert.pooler.dense.weight", "bert.pooler.dense.bias",
                                              "classifier.weight", "classifier.bias"));
  EXPECT_EQ(parameter_of(*model, "classifier.bias").abs().max().item<double>(), 0);
  EXPECT_LT(parameter_of(*model, "classifier.weight").abs().max().item<double>(), 0.2);
  EXPECT_THAT(loaded.unexpected, ::testing::Contains("cls.predictions.bias"));
  EXPECT_THAT(to_string(loaded), HasSubstr("newly initialised, to be trained: "));
  EXPECT_THAT(to_string(loaded), HasSubstr("not used: cls.predictions."));
}

TEST(Load, KnowsGammaAndBeta) {
  const Folder folder;
  const auto model = filled(tiny_bert(), {.task = Task::masked_lm}),
             other = build(tiny_bert(), {.task = Task::masked_lm});
  const auto path =
      folder.write("x.safetensors", file_with(entries_of(*model, [](std::string name) {
                     if (name.ends_with("LayerNorm.weight"))
                       name.replace(name.size() - 6, 6, "gamma");
                     if (name.ends_with("LayerNorm.bias")) name.replace(name.size() - 4, 4, "beta");
                     return name;
                   })));
  EXPECT_THAT(load(*other, path).missing, IsEmpty());
  expect_equal(*model, *other);
}

TEST(Load, TakesTiedWeightsUnderAnyOfTheirNames) {
  const Folder folder;
  const auto model = filled(tiny_gpt2()), other = build(tiny_gpt2());
  const auto path =
      folder.write("x.safetensors", file_with(entries_of(*model, [](const std::string& name) {
                     return name == "transformer.wte.weight" ? "lm_head.weight" : name;
                   })));
  EXPECT_THAT(load(*other, path).missing, IsEmpty());
  expect_equal(*model, *other);
}

// transformers ties the head to the embedding after reading both.
TEST(Load, PrefersTheEmbeddingToAHeadThatIsTiedToIt) {
  const Folder folder;
  const auto model = filled(tiny_gpt2()), other = build(tiny_gpt2());
  auto entries = entries_of(*model, same);
  entries.insert(entries.begin(), floats("lm_head.weight", at::zeros({11, 8})));
  const Loaded loaded = load(*other, folder.write("x.safetensors", file_with(entries)));
  EXPECT_THAT(loaded.unexpected, IsEmpty());
  expect_equal(*model, *other);
}

TEST(Load, SkipsTensorsOfOldVersions) {
  const Folder folder;
  const auto model = filled(tiny_llama()), other = build(tiny_llama());
  auto entries = entries_of(*model, same);
  entries.push_back(floats("model.layers.0.self_attn.rotary_emb.inv_freq", at::zeros({2})));
  EXPECT_THAT(load(*other, folder.write("x.safetensors", file_with(entries))).unexpected,
              IsEmpty());
  expect_equal(*model, *other);
}

TEST(Load, RefusesTwoTensorsForOnePlace) {
  const Folder folder;
  const auto model = filled(tiny_bert(), {.task = Task::masked_lm});
  auto entries = entries_of(*model, same);
  entries.push_back(floats("bert.embeddings.LayerNorm.gamma", at::zeros({8})));
  EXPECT_THAT(refusal(*model, folder.write("x.safetensors", file_with(entries))),
              HasSubstr("one tensor for bert.embeddings.LayerNorm.weight"));
}

// ---- What does not fit ----

TEST(Load, RefusesAnotherShapeOrSkipsIt) {
  const Folder folder;
  const auto model = filled(tiny_bert(), {.task = Task::sequence_classification});
  auto entries = entries_of(*model, same);
  entries.back() = floats(entries.back().name, at::zeros({9}));
  ASSERT_EQ(entries.back().name, "classifier.bias");
  const auto path = folder.write("x.safetensors", file_with(entries));
  EXPECT_THAT(refusal(*model, path), HasSubstr("expected [3] for tensor \"classifier.bias\""));
  EXPECT_THAT(refusal(*model, path), HasSubstr("received '[9]'"));
  const Loaded loaded = load(*model, path, {.skip_other_shapes = true});
  ASSERT_EQ(loaded.other_shapes.size(), 1U);
  EXPECT_THAT(loaded.missing, ElementsAre("classifier.bias"));
  EXPECT_EQ(parameter_of(*model, "classifier.bias").abs().max().item<double>(), 0);
  EXPECT_THAT(to_string(loaded), HasSubstr("classifier.bias, [9] in the file and [3]"));
}

TEST(Load, RefusesTypesThatAreNoWeights) {
  const Folder folder;
  const auto model = filled(tiny_gpt2());
  const std::string name = "transformer.ln_f.weight";
  const auto with = [&](const std::string& type, std::size_t bytes) {
    auto entries = entries_of(*model, same);
    for (Entry& each : entries)
      if (each.name == name) each = {name, type, {8}, std::string(bytes, '\0')};
    return refusal(*model, folder.write("x.safetensors", file_with(entries)));
  };
  EXPECT_EQ(with("BF16", 16), "none");
  EXPECT_THAT(with("F8_E4M3", 8), HasSubstr("not quantized"));
  EXPECT_THAT(with("I32", 32), HasSubstr("expected floats for tensor \"" + name + "\""));
  EXPECT_THAT(with("BOOL", 8), HasSubstr("received 'BOOL'"));
}

TEST(Load, LeavesTheModelAsItWasWhenItRefuses) {
  const Folder folder;
  const auto model = filled(tiny_gpt2()), other = build(tiny_gpt2());
  initialise(*other);
  const at::Tensor before = parameters_of(*other).front().second.detach().clone();
  auto entries = entries_of(*model, same);
  entries.back().shape = {2, 4};
  EXPECT_THAT(refusal(*other, folder.write("x.safetensors", file_with(entries))),
              HasSubstr("[2, 4]"));
  EXPECT_TRUE(at::equal(before, parameters_of(*other).front().second));
}

TEST(Load, RefusesWeightsOfAnotherModel) {
  const Folder folder;
  save(*filled(tiny_bert()), folder.path());
  const auto model = build(tiny_gpt2());
  EXPECT_THAT(refusal(*model, folder.path()), HasSubstr("weights of a gpt2 model"));
  EXPECT_THAT(refusal(*model, folder.write("x.safetensors", file_of("{}", ""))),
              HasSubstr("no tensors"));
}

TEST(Load, RefusesAMissingFile) {
  const Folder folder;
  const auto model = build(tiny_gpt2());
  EXPECT_THAT(refusal(*model, folder / "none.safetensors"), HasSubstr("No such file"));
  EXPECT_THAT(refusal(*model, folder.path()), HasSubstr("received 'neither'"));
  EXPECT_THAT(refusal(*model, "/dev/null"), HasSubstr("which is not one"));
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(refusal(*model, folder / "pipe"), HasSubstr("which is not one"));
  EXPECT_THAT(refusal(*model, std::string(5000, 'x')), HasSubstr("[safetensors] cannot read x"));
  EXPECT_THAT(refusal(*model, folder.write("x.safetensors", "")), HasSubstr("a file of 0"));
  save(*filled(tiny_gpt2()), folder / "whole.safetensors");
  const std::string whole = read_input(folder / "whole.safetensors");
  EXPECT_THAT(refusal(*model, folder.write("y.safetensors", whole.substr(0, whole.size() - 1))),
              HasSubstr("is it complete?"));
}

// Garbage is refused with words, or is another file that is right: nothing else happens.
TEST(Load, EndsGarbageInAnInputErrorAndNothingElse) {
  const Folder folder;
  const auto model = filled(tiny_llama());
  save(*model, folder / "whole.safetensors");
  const std::string whole = read_input(folder / "whole.safetensors");
  const std::size_t head = whole.find("]}}") + 3;
  std::mt19937 random(20'253);
  int refused = 0, read = 0;
  for (int i = 0; i < 1000; ++i) {
    const std::string json =
        testing::mutated(whole.substr(8, head - 8), whole, random, testing::kOfJson);
    const std::string file = i % 4 == 0 ? testing::mutated(whole, whole, random, testing::kOfJson)
                                        : file_of(json, std::string_view(whole).substr(head));
    const auto path = folder.write("garbage.safetensors", file);
    ASSERT_NO_THROW(++(refusal(*model, path) == "none" ? read : refused)) << i;
  }
  EXPECT_GT(refused, 700);
  EXPECT_GT(read, 3);
}

// ---- Memory ----

// The peak resident memory of this process since the last call, in MiB.
double most_resident(bool reset) {
  if (reset) std::ofstream("/proc/self/clear_refs") << 5;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return std::stod(line.substr(6)) / 1024;
  return 0;
}

TEST(Checkpoints, ComeAndGoWithoutASecondCopyInMemory) {
  const Folder folder;
  const auto model = filled(large_gpt2());
  double before = most_resident(true);
  save(*model, folder.path());
  EXPECT_LT(most_resident(false) - before, 24);
  before = most_resident(true);
  load(*model, folder.path());
  EXPECT_LT(most_resident(false) - before, 24);
}

}  // namespace
}  // namespace headroom::weights
