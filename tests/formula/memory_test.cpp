#include "headroom/formula/memory.h"

#include <gtest/gtest.h>

#include <set>

namespace headroom::formula {
namespace {

using namespace headroom::literals;

const ModelShape& shape(const char* name) {
  const ModelShape* found = find_shape(name);
  if (found == nullptr) throw std::out_of_range(name);
  return *found;
}

TEST(WeightBytes, FollowThePrecision) {
  for (const ModelShape& model : standard_shapes()) {
    const Bytes fp32 = weight_bytes(model, Precision::fp32);
    EXPECT_EQ(fp32.count, 4 * parameters(model));
    EXPECT_EQ(weight_bytes(model, Precision::fp16) * 2, fp32);
    EXPECT_EQ(weight_bytes(model, Precision::int8) * 4, fp32);
    EXPECT_GE(weight_bytes(model, Precision::int4) * 8, fp32);
    EXPECT_LT(weight_bytes(model, Precision::int4) * 8 - fp32, 8_B);
  }
}

// 4 bytes of weight, 4 of gradient, 8 of Adam's two moments.
TEST(TrainingMemory, TakesSixteenBytesAParameterWithAdamInFp32) {
  for (const ModelShape& model : standard_shapes()) {
    const auto memory = training_memory(model, Technique::fp32, {});
    EXPECT_EQ(memory.weights.count, 4 * parameters(model));
    EXPECT_EQ(memory.gradients.count, 4 * parameters(model));
    EXPECT_EQ(memory.optimizer.count, 8 * parameters(model));
    EXPECT_EQ(memory.states().count, 16 * parameters(model));
  }
}

TEST(TrainingMemory, TakesEightBytesAParameterWithPlainSgdOrInBf16) {
  const long long n = parameters(shape("7B"));
  EXPECT_EQ(training_memory(shape("7B"), Technique::sgd, {}).states().count, 8 * n);
  EXPECT_EQ(training_memory(shape("7B"), Technique::bf16, {}).states().count, 8 * n);
}

// What it is often believed to do - halve the states - it does not.
TEST(TrainingMemory, OfMixedPrecisionSavesActivationsOnly) {
  for (const ModelShape& model : standard_shapes()) {
    const auto full = training_memory(model, Technique::fp32, {.batch = 4, .seq = 1024});
    const auto mixed =
        training_memory(model, Technique::mixed_precision, {.batch = 4, .seq = 1024});
    EXPECT_GE(mixed.weights, full.weights);
    EXPECT_EQ(mixed.gradients, full.gradients);
    EXPECT_EQ(mixed.optimizer, full.optimizer);
    EXPECT_EQ(mixed.activations * 2, full.activations);
  }
}

TEST(TrainingMemory, AddsUpToItsTotal) {
  for (const Technique technique : all_techniques()) {
    const auto m = training_memory(shape("13B"), technique, {.batch = 2, .seq = 2048});
    EXPECT_EQ(m.total(), m.weights + m.gradients + m.optimizer + m.activations + m.logits);
  }
}

// PyTorch's MemTracker says 6552.68 MiB for two AdamW steps of GPT-2 in fp32 with 4 x 1024 tokens
// (torch.distributed._tools.mem_tracker, torch 2.11), peak of all tensors.
TEST(TrainingMemory, OfGpt2IsWithinOnePercentOfMemTracker) {
  const auto memory = training_memory(shape("125M"), Technique::fp32, {.batch = 4, .seq = 1024});
  EXPECT_NEAR(memory.total().mib(), 6552.68, 65.5);
}

TEST(TrainingMemory, GrowsWithBatchAndWithSequence) {
  for (const ModelShape& model : standard_shapes()) {
    for (const Technique technique : all_techniques()) {
      Bytes before{0};
      for (const long long batch : {1, 2, 3, 8, 64}) {
        const Bytes now = training_memory(model, technique, {.batch = batch, .seq = 512}).total();
        ASSERT_GT(now, before) << model.name << " " << name_of(technique) << " batch " << batch;
        before = now;
      }
      before = Bytes{0};
      for (const long long seq : {1, 128, 512, 4096, 131072}) {
        const Bytes now = training_memory(model, technique, {.batch = 2, .seq = seq}).total();
        ASSERT_GT(now, before) << model.name << " " << name_of(technique) << " seq " << seq;
        before = now;
      }
    }
  }
}

TEST(TrainingMemory, OrdersTheTechniquesAsPeopleKnowThem) {
  const auto total = [](Technique technique) {
    return training_memory(shape("7B"), technique, {.batch = 4, .seq = 2048}).total();
  };
  EXPECT_LT(total(Technique::mixed_precision), total(Technique::fp32));
  EXPECT_LT(total(Technique::mixed_checkpointed), total(Technique::mixed_precision));
  EXPECT_LT(total(Technique::bf16), total(Technique::mixed_precision));
  EXPECT_LT(total(Technique::lora), total(Technique::bf16));
  EXPECT_LT(total(Technique::lora_4bit), total(Technique::lora));
  EXPECT_LT(total(Technique::sgd), total(Technique::fp32));
}

// Rank 8 on the four attention projections of 7B: 32 layers x 4 x 8 x (4096 + 4096) = 8,388,608,
// the figure of Hugging Face's PEFT for Llama-2-7B with r = 8 on q, k, v and o.
TEST(TrainingMemory, OfLoraTrainsTheAdaptersOnly) {
  const auto memory = training_memory(shape("7B"), Technique::lora, {});
  EXPECT_EQ(memory.gradients.count, 4 * 8'388'608);
  EXPECT_EQ(memory.optimizer.count, 8 * 8'388'608);
  EXPECT_EQ(memory.weights.count, 2 * parameters(shape("7B")) + 4 * 8'388'608);
}

TEST(TrainingMemory, StaysPositiveForTheLargestSettingsTheCommandTakes) {
  const auto memory =
      training_memory(shape("70B"), Technique::fp32, {.batch = 1000, .seq = 100'000});
  EXPECT_GT(memory.activations, 1024_GiB);
  EXPECT_GT(memory.total(), memory.activations);
}

TEST(InferenceMemory, AddsTheCacheOfTheWholeSequence) {
  const Bytes short_one = inference_memory(shape("7B"), Precision::fp16, {.batch = 1, .seq = 1});
  const Bytes long_one = inference_memory(shape("7B"), Precision::fp16, {.batch = 1, .seq = 4097});
  // Keys and values, 32 layers, 4096 wide, 2 bytes: 512 KiB a token (Kwon et al. 2023 count 800 KB
  // for the 13B of OPT, by the same rule).
  EXPECT_EQ(long_one - short_one, 512_KiB * 4096);
}

TEST(InferenceMemory, HasASmallerCacheWithGroupedHeads) {
  const auto cache_of = [](const char* name) {
    return inference_memory(shape(name), Precision::int4, {.batch = 1, .seq = 4096}) -
           weight_bytes(shape(name), Precision::int4);
  };
  EXPECT_LT(cache_of("70B"), cache_of("13B"));
}

TEST(Techniques, HaveNamesAndKeysOfTheirOwn) {
  std::set<std::string> names, keys;
  for (const Technique technique : all_techniques()) {
    names.insert(name_of(technique));
    keys.insert(key_of(technique));
    EXPECT_EQ(
        std::string(key_of(technique)).find_first_not_of("abcdefghijklmnopqrstuvwxyz_0123456789"),
        std::string::npos);
  }
  EXPECT_EQ(names.size(), all_techniques().size());
  EXPECT_EQ(keys.size(), all_techniques().size());
}

}  // namespace
}  // namespace headroom::formula
