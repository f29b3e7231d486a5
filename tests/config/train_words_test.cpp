// Settings of `headroom estimate` in the words of `headroom train`.
#include "headroom/config/train_words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "headroom/base/error.h"
#include "headroom/config/resolved.h"
#include "headroom/config/training.h"
#include "headroom/config/training_keys.h"

namespace headroom::config {
namespace {

using ::testing::ElementsAre;

struct Asked {
  const char* option;
  Json settings;
};

// Each option means to a training what it means to an estimate.
TEST(TrainWords, MeanTheSameSettings) {
  const std::vector<Asked> all{{"--seq", {{"seq", 96}}},
                               {"--dtype", {{"dtype", "bfloat16"}}},
                               {"--autocast", {{"autocast", "bf16"}}},
                               {"--autocast", {{"autocast", "fp16"}}},
                               {"--autocast", {{"autocast", "none"}}},
                               {"--optimizer", {{"optimizer", "adamw8bit"}}},
                               {"--attention", {{"attention", "eager"}}},
                               {"--checkpointing", {{"checkpointing", "full"}}},
                               {"--checkpointing", {{"checkpointing", "every:3"}}},
                               {"--checkpointing", {{"checkpointing", "none"}}},
                               {"--clip", {{"clip", 0.5}}},
                               {"--loss", {{"loss", "fused"}}},
                               {"--loss", {{"loss", "chunked:64"}}},
                               {"--offload", {{"offload", {"activations"}}}},
                               {"--lora-rank", {{"lora_rank", 4}}},
                               {"--freeze-backbone", {{"freeze_backbone", true}}}};
  for (const Asked& asked : all) {
    SCOPED_TRACE(to_line(asked.settings));
    const model::Settings settings = model::settings_from_json(asked.settings);
    std::vector<std::string> words = train_words(settings, {asked.option});
    words.insert(words.begin(), {"model=full", "model.config=gpt2", "dataset=synthetic"});
    const Json means =
        model::to_json(Training(resolve(training_keys(), {.overrides = words})).settings);
    for (const auto& [key, value] : asked.settings.items()) EXPECT_EQ(means.at(key), value);
  }
}

TEST(TrainWords, AreOfTheGivenOptionsOnly) {
  model::Settings settings;
  settings.seq = 128;
  settings.dtype = model::Dtype::bfloat16;
  settings.batch = 8;
  EXPECT_THAT(train_words(settings, {"--seq", "--batch"}), ElementsAre("seq=128"));
  EXPECT_THAT(train_words(settings, {}), ElementsAre());
}

TEST(TrainWords, RefuseAnOptionWithoutAKey) {
  for (const char* option : {"--zero", "--world", "--mask", "--transformers", "--mode", "--steps"})
    EXPECT_THROW(static_cast<void>(train_words({}, {option})), UsageError) << option;
}

}  // namespace
}  // namespace headroom::config
