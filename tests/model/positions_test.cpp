#include "headroom/model/positions.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "headroom/base/error.h"
#include "headroom/model/model_catalogue.h"

namespace headroom::model {
namespace {

ModelConfig known_config(const char* name) {
  return model_named(name).config;
}

TEST(SequenceLength, IsTheDefaultOrTheModelsMaximum) {
  EXPECT_EQ(sequence_length(known_config("llama-3.1-8b"), {}), 512);
  EXPECT_EQ(sequence_length(known_config("t5-small"), {}), 512);
  const Json small{{"model_type", "gpt2"}, {"n_positions", 64}};
  EXPECT_EQ(sequence_length(ModelConfig(small, "small"), {}), 64);
  Settings said;
  said.seq = 77;
  EXPECT_EQ(sequence_length(known_config("gpt2"), said), 77);
}

TEST(ImageSide, ComesFromTheSettingsThenTheConfigurationThenTheDefault) {
  EXPECT_EQ(image_side(known_config("resnet18"), {}), 224) << "its configuration has none";
  const Json small{{"model_type", "vit"}, {"image_size", 96}};
  EXPECT_EQ(image_side(ModelConfig(small, "small"), {}), 96);
  Settings said;
  said.image = 64;
  EXPECT_EQ(image_side(ModelConfig(small, "small"), said), 64);
}

// LibTorch's complaint of a kernel larger than its input was shown as a bug of ours.
TEST(CheckImage, RefusesImagesTooSmallForTheStagesOfAConvnext) {
  const auto config = [](int side) {
    return ModelConfig(Json{{"model_type", "convnext"}, {"image_size", side}}, "small");
  };
  EXPECT_THROW(check_image(config(31), {}), InputError);
  EXPECT_NO_THROW(check_image(config(32), {}));
  Settings said;
  said.image = 16;
  EXPECT_THROW(check_image(config(224), said), UsageError);
  EXPECT_NO_THROW(check_image(known_config("resnet50"), said)) << "pads what is small";
}

// An image model was shown with as many tokens as had been said.
TEST(SettleSizes, KeepsOnlyTheSizesOfTheTask) {
  Settings said;
  said.seq = 77, said.image = 64, said.target_seq = 9;
  const auto settled = [&](const char* model, Task task) {
    Settings settings = said;
    settings.task = task;
    settle_sizes(known_config(model), settings);
    return settings;
  };
  const Settings images = settled("vit-base", Task::image_classification),
                 tokens = settled("gpt2", Task::causal_lm),
                 both = settled("t5-small", Task::seq2seq_lm);
  EXPECT_EQ(images.image, 64);
  EXPECT_EQ(images.seq, std::nullopt);
  EXPECT_EQ(images.target_seq, std::nullopt);
  EXPECT_EQ(tokens.seq, 77);
  EXPECT_EQ(tokens.image, std::nullopt);
  EXPECT_EQ(tokens.target_seq, std::nullopt);
  EXPECT_EQ(both.target_seq, 9);
  said = {};
  EXPECT_EQ(settled("t5-small", Task::seq2seq_lm).target_seq, 512);
}

TEST(LongestSequence, ExcludesRobertasPaddingPositions) {
  EXPECT_EQ(longest_sequence(known_config("roberta-base")), 512);
  EXPECT_EQ(longest_sequence(known_config("bert-base")), 512);
  EXPECT_EQ(longest_sequence(known_config("t5-small")), std::nullopt);
}

TEST(CheckSequence, EndsWhereLearnedPositionsEnd) {
  EXPECT_NO_THROW(check_sequence(known_config("gpt2"), 1024));
  EXPECT_THROW(check_sequence(known_config("gpt2"), 1025), UsageError);
  EXPECT_THROW(check_sequence(known_config("roberta-base"), 513), UsageError);
  EXPECT_NO_THROW(check_sequence(known_config("tinyllama-1.1b"), 4096))
      << "its positions are computed";
  EXPECT_THROW(check_sequence(known_config("tinyllama-1.1b"), 0), UsageError);
}

}  // namespace
}  // namespace headroom::model
