// Quantised weights in files: packed as they are read, and stored under bitsandbytes' names. What
// bitsandbytes and transformers say to these files: tests/peers/quantised.py.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

#include "headroom/libtorch/on.h"
#include "headroom/nn/lora.h"
#include "headroom/nn/quantise.h"
#include "headroom/weights/adapter_files.h"
#include "headroom/weights/detail/bitsandbytes.h"
#include "headroom/weights/detail/packed_tensors.h"
#include "tests/weights/stored_models.h"

namespace headroom::weights {
namespace {

using namespace literals;

using kernels::Format;
using kernels::Packed;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::vector<nn::QuantiseOptions> kFormats = {
    {.format = Format::nf4}, {.format = Format::nf4, .nested = false}, {.format = Format::int8}};

// Linear, Conv1D and stacked experts, of sizes that blocks of 64 do not fit, but for experts.
const std::vector<std::string> kTypes = {"llama", "gpt2", "mixtral"};

std::shared_ptr<Model> without_memory(const std::string& type) {
  const nn::WithoutMemoryScope scope;
  return tiny(type);
}

std::shared_ptr<Model> quantised(const std::string& type, const nn::QuantiseOptions& options) {
  auto model = tiny(type);
  fill(*model);
  nn::quantise(model->module(), options);
  return model;
}

at::Tensor numbers_of(const at::Tensor& parameter) {
  const Packed* const packed = nn::packed_of(parameter);
  if (packed == nullptr) return parameter.detach();
  const at::Tensor numbers = at::empty({packed->rows, packed->columns});
  kernels::unpack(*packed, 0, 0, numbers);
  return numbers;
}

// The same codes and scales, to the bit.
void expect_same_packed(Model& ours, Model& right) {
  std::size_t packed_weights = 0;
  for (const auto& [name, parameter] : parameters_of(right)) {
    const at::Tensor mine = parameter_of(ours, name);
    const Packed *const a = nn::packed_of(mine), *const b = nn::packed_of(parameter);
    ASSERT_EQ(a == nullptr, b == nullptr) << name;
    if (b == nullptr) {
      EXPECT_TRUE(at::equal(mine, parameter)) << name;
      continue;
    }
    ++packed_weights;
    EXPECT_EQ(nn::is_packed_transposed(mine), nn::is_packed_transposed(parameter)) << name;
    ASSERT_EQ(a->tensors().size(), b->tensors().size()) << name;
    for (std::size_t i = 0; i < b->tensors().size(); ++i)
      EXPECT_TRUE(at::equal(a->tensors()[i], b->tensors()[i])) << name << ", part " << i;
  }
  EXPECT_GT(packed_weights, 0U);
}

void expect_same_numbers(Model& ours, Model& right) {
  for (const auto& [name, parameter] : parameters_of(right))
    EXPECT_TRUE(at::equal(numbers_of(parameter_of(ours, name)), numbers_of(parameter))) << name;
}

TEST(QuantisedFiles, PackWeightsAsTheyAreRead) {
  for (const std::string& type : kTypes)
    for (const nn::QuantiseOptions& options : kFormats) {
      SCOPED_TRACE(type);
      const Folder folder;
      auto plain = tiny(type);
      fill(*plain);
      save(*plain, folder.path());
      const auto model = without_memory(type);
      const Loaded loaded = load(*model, folder.path(), {.quantise = options});
      EXPECT_THAT(loaded.missing, ElementsAre());
      const auto right = quantised(type, options);
      expect_same_packed(*model, *right);
      EXPECT_THAT(
          to_string(loaded),
          HasSubstr("quantised as they were read: " + std::to_string(loaded.packed) + " weights"));
    }
}

TEST(QuantisedFiles, CarryCodesAndScalesThereAndBack) {
  for (const std::string& type : kTypes)
    for (const nn::QuantiseOptions& options : kFormats) {
      SCOPED_TRACE(type);
      const Folder folder;
      const auto saved = quantised(type, options);
      save(*saved, folder.path(), {.shard = 3_KiB});
      const auto model = without_memory(type);
      const Loaded loaded = load(*model, folder.path());
      EXPECT_THAT(loaded.missing, ElementsAre());
      EXPECT_THAT(loaded.unexpected, ElementsAre());
      EXPECT_EQ(loaded.dequantised, 0U);
      // Blocks of these small experts' 8-bit scales cannot be cut: files have float ones.
      if (type == "mixtral" && options.format == Format::nf4)
        expect_same_numbers(*model, *saved);
      else
        expect_same_packed(*model, *saved);
    }
}

TEST(QuantisedFiles, AreDequantisedIntoAModelThatIsNotQuantised) {
  for (const std::string& type : kTypes) {
    SCOPED_TRACE(type);
    const Folder folder;
    const auto saved = quantised(type, {});
    save(*saved, folder.path());
    const auto model = tiny(type);
    const Loaded loaded = load(*model, folder.path());
    EXPECT_EQ(loaded.dequantised, loaded.quantised);
    EXPECT_THAT(to_string(loaded), HasSubstr("dequantised here"));
    for (const auto& [name, parameter] : parameters_of(*saved)) {
      const at::Tensor numbers = numbers_of(parameter);
      const at::Tensor right =
          nn::is_packed_transposed(parameter) ? numbers.t() : numbers.view(parameter.sizes());
      EXPECT_TRUE(at::equal(parameter_of(*model, name), right)) << name;
    }
  }
}

TEST(QuantisedFiles, ArePackedAnewInAnotherFormat) {
  const Folder folder;
  const auto saved = quantised("llama", {.format = Format::int8});
  save(*saved, folder.path());
  const auto model = without_memory("llama");
  load(*model, folder.path(), {.quantise = nn::QuantiseOptions{}});
  nn::quantise(saved->module(), {});
  expect_same_packed(*model, *saved);
}

// The tensors of a file whose names contain none of these words.
NamedTensors without(const std::filesystem::path& file, const std::vector<std::string>& words) {
  const TensorFile from(file);
  NamedTensors left;
  for (const std::string& name : from.names())
    if (std::none_of(words.begin(), words.end(),
                     [&](const std::string& word) { return name.find(word) != std::string::npos; }))
      left.emplace_back(name, from.read(name));
  return left;
}

TEST(QuantisedFiles, LeaveWeightsThatTheyLackToBeDrawn) {
  for (const std::string& type : kTypes) {
    SCOPED_TRACE(type);
    const Folder folder;
    auto plain = tiny(type);
    fill(*plain);
    save(*plain, folder.path());
    const std::vector<std::string> second_layer{"layers.1.", "h.1."};
    save_tensors(folder / "part.safetensors", without(folder / "model.safetensors", second_layer));
    const auto model = without_memory(type), right = tiny(type);
    torch::manual_seed(5);
    const Loaded loaded =
        load(*model, folder / "part.safetensors", {.quantise = nn::QuantiseOptions{}});
    EXPECT_THAT(loaded.missing, ::testing::Not(ElementsAre()));
    torch::manual_seed(5);
    load(*right, folder / "part.safetensors");
    nn::quantise(right->module());
    expect_same_packed(*model, *right);
  }
}

TEST(QuantisedFiles, OfSomeExpertsAreRefused) {
  const Folder folder;
  const auto model = tiny("mixtral");
  fill(*model);
  save(*model, folder / "whole");
  save_tensors(folder / "part.safetensors",
               without(folder / "whole" / "model.safetensors", {"experts.1."}));
  EXPECT_EQ(load(*tiny("mixtral"), folder / "part.safetensors").missing.size(), 6U);
  EXPECT_THAT(
      [&] { load(*tiny("mixtral"), folder / "part.safetensors", {.quantise = kFormats[0]}); },
      ThrowsMessage<InputError>(HasSubstr("expected all experts beside it")));
}

TEST(QuantisedFiles, ListWeightsOnly) {
  const Folder folder;
  for (const char* name : {"weight", "fc.weight", "experts.up_proj"}) {
    NamedTensors tensors;
    const Packed packed = kernels::make_packed(Format::int8, 8, 80, at::kCPU);
    kernels::pack(at::rand({8, 80}), packed);
    detail::add_packed(tensors, name, packed, at::kFloat);
    save_tensors(folder / "one.safetensors", tensors);
    EXPECT_THAT(TensorFile(folder / "one.safetensors").names(), ElementsAre(name));
  }
}

TEST(QuantisedFiles, KeepAdaptersOnAQuantisedBase) {
  const Folder folder;
  const auto first = quantised("llama", {});
  auto lora = nn::add_lora(first->module(), {.rank = 2, .targets = {"all-linear"}});
  save_adapter(lora, folder / "adapter");
  const auto second = quantised("llama", {});
  const auto again = load_adapter(second->module(), folder / "adapter");
  EXPECT_EQ(again.layers(), lora.layers());
  for (std::size_t i = 0; i < lora.parameters().size(); ++i)
    EXPECT_TRUE(at::equal(again.parameters()[i].second, lora.parameters()[i].second));
}

TEST(QuantisedFiles, TellTransformersHowTheyAreQuantised) {
  const auto model = quantised("llama", {});
  const Json config = Json::parse(quantisation_config(*model).value());
  EXPECT_EQ(config["quant_method"], "bitsandbytes");
  EXPECT_EQ(config["load_in_4bit"], true);
  EXPECT_EQ(config["bnb_4bit_quant_type"], "nf4");
  EXPECT_EQ(config["bnb_4bit_use_double_quant"], true);
  EXPECT_EQ(config["llm_int8_skip_modules"], Json::array({"lm_head"}));
  const auto in_8_bit = quantised("gpt2", {.format = Format::int8});
  EXPECT_EQ(Json::parse(quantisation_config(*in_8_bit).value())["load_in_8bit"], true);
  const auto plain = tiny("llama");
  EXPECT_FALSE(quantisation_config(*plain));
}

// ---- Files that cannot be read ----

// A matrix as stored, of which a test changes something.
NamedTensors stored(Format format) {
  const at::Tensor weight = at::rand({8, 80}) - 0.5;
  const Packed packed = kernels::make_packed(format, 8, 80, at::kCPU);
  kernels::pack(weight, packed);
  NamedTensors tensors;
  detail::add_packed(tensors, "fc.weight", packed, at::kFloat);
  return tensors;
}

at::Tensor& tensor_of(NamedTensors& tensors, const std::string& name) {
  for (auto& [own, tensor] : tensors)
    if (own == name) return tensor;
  throw std::out_of_range(name);
}

std::string refusal_of(const NamedTensors& tensors) {
  const Folder folder;
  save_tensors(folder / "one.safetensors", tensors);
  try {
    static_cast<void>(TensorFile(folder / "one.safetensors").read("fc.weight"));
  } catch (const InputError& error) {
    return error.what();
  }
  return "none";
}

std::string text_of(const at::Tensor& bytes) {
  const auto* begin = bytes.data_ptr<std::uint8_t>();
  return {begin, begin + bytes.numel()};
}

std::string refusal_of_state(const std::string& key, const Json& value) {
  NamedTensors tensors = stored(Format::nf4);
  at::Tensor& state = tensor_of(tensors, "fc.weight.quant_state.bitsandbytes__nf4");
  Json json = Json::parse(text_of(state));
  json[key] = value;
  const std::string text = json.dump();
  state = at::empty({static_cast<std::int64_t>(text.size())}, at::kByte);
  std::copy(text.begin(), text.end(), state.data_ptr<std::uint8_t>());
  return refusal_of(tensors);
}

TEST(QuantisedFiles, AreRefusedInWordsIfTheyAreOfAnotherKind) {
  EXPECT_EQ(refusal_of(stored(Format::nf4)), "none");
  EXPECT_THAT(refusal_of_state("quant_type", "fp4"), HasSubstr("expected quant_type \"nf4\""));
  EXPECT_THAT(refusal_of_state("blocksize", 128), HasSubstr("expected blocksize 64"));
  EXPECT_THAT(refusal_of_state("nested_blocksize", 512),
              HasSubstr("expected nested_blocksize 256"));
  EXPECT_THAT(refusal_of_state("shape", {8, 81}), HasSubstr("expected 324 bytes"));
  EXPECT_THAT(refusal_of_state("shape", {-8, -80}), HasSubstr("a shape with numbers in it"));
  NamedTensors fp4 = stored(Format::nf4);
  for (auto& [name, tensor] : fp4)
    if (name.ends_with("__nf4")) name.replace(name.size() - 3, 3, "fp4");
  EXPECT_THAT(refusal_of(fp4), HasSubstr("expected NF4 or 8 bit"));
  NamedTensors map = stored(Format::nf4);
  tensor_of(map, "fc.weight.quant_map") = tensor_of(map, "fc.weight.quant_map") * 0.9;
  EXPECT_THAT(refusal_of(map), HasSubstr("received 'other numbers'"));
}

TEST(QuantisedFiles, AreRefusedInWordsIfTheyHaveNoNumbers) {
  EXPECT_THAT(refusal_of({{"fc.weight", at::zeros({8, 0}, at::kChar)}, {"fc.SCB", at::zeros({8})}}),
              HasSubstr("received 'I8 with 0 numbers'"));
}

TEST(QuantisedFiles, OfExpertsThatBlocksDoNotFitAreRefused) {
  const Packed part = kernels::make_packed(Format::nf4, 5, 7, at::kCPU, /*nested=*/false);
  kernels::pack(at::rand({5, 7}), part);
  EXPECT_THAT(
      [&] {
        (void)detail::joined({part, part});
      },
      ThrowsMessage<InputError>(HasSubstr("a multiple of 64 numbers")));
}

TEST(QuantisedFiles, AreRefusedInWordsIfPartsAreMissingOrOfOtherSizes) {
  for (const char* part : {".absmax", ".nested_absmax", ".nested_quant_map", ".quant_map"}) {
    NamedTensors tensors = stored(Format::nf4);
    std::erase_if(tensors, [&](const auto& each) { return each.first.ends_with(part); });
    EXPECT_THAT(refusal_of(tensors), HasSubstr(part)) << part;
    tensors = stored(Format::nf4);
    at::Tensor& its = tensor_of(tensors, std::string("fc.weight") + part);
    its = at::cat({its, its});
    EXPECT_THAT(refusal_of(tensors), HasSubstr("received '" + std::to_string(its.numel()) + " of "))
        << part;
  }
  NamedTensors scales = stored(Format::int8);
  tensor_of(scales, "fc.SCB") = at::ones({7});
  EXPECT_THAT(refusal_of(scales), HasSubstr("expected 8 numbers of F32"));
  NamedTensors layout = stored(Format::int8);
  tensor_of(layout, "fc.weight_format") = at::ones({}, at::kByte);
  EXPECT_THAT(refusal_of(layout), HasSubstr("weight_format 1"));
}

TEST(QuantisedFiles, ChangeNothingIfOneIsRefused) {
  const Folder folder;
  const auto saved = quantised("llama", {});
  save(*saved, folder.path());
  const TensorFile file(folder / "model.safetensors");
  const auto other = tiny("llama", R"({"intermediate_size":28})");
  fill(*other);
  const auto same_again = tiny("llama", R"({"intermediate_size":28})");
  fill(*same_again);
  EXPECT_THAT(refusal(*other, folder.path()), HasSubstr("the config.json that belongs to"));
  expect_equal(*other, *same_again);
}

}  // namespace
}  // namespace headroom::weights
