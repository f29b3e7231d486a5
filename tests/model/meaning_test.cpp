#include "headroom/model/meaning.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <tuple>

#include "headroom/base/error.h"
#include "headroom/model/model_catalogue.h"

namespace headroom::model {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string answer(const char* model, const char* settings, const char* option) {
  try {
    check_meaning(model_named(model).config, settings_from_json(parse_json(settings, "test")),
                  {option});
    return "fine";
  } catch (const UsageError& error) {
    return error.what();
  }
}

// `--image` of a text model, `--seq` of images and `--zero` alone were taken and changed nothing.
TEST(CheckMeaning, RefusesSettingsWithoutEffectOnThisModelAndSaysWhy) {
  using Case = std::tuple<const char*, const char*, const char*, const char*>;
  for (const auto& [model, settings, option, why] : std::vector<Case>{
           {"gpt2", R"({"image": 224})", "--image", "takes tokens"},
           {"bert-base", R"({"image": 224})", "--image", "takes tokens"},
           {"t5-small", R"({"image": 224})", "--image", "takes tokens"},
           {"resnet50", R"({"seq": 10})", "--seq", "takes images"},
           {"vit-base", R"({"seq": 10})", "--seq", "takes images"},
           {"vit-base", R"({"mask": "none"})", "--mask", "takes images"},
           {"gpt2", R"({"target_seq": 10})", "--target-seq", "no decoder beside an encoder"},
           {"resnet50", R"({"attention": "eager"})", "--attention", "has no attention"},
           {"resnet50", R"({"lora_rank": 8})", "--lora-rank", "has no attention"},
           {"gpt2", R"({"lora_dtype": "weights"})", "--lora-dtype", "without --lora-rank"},
           {"bert-base", R"({"task": "sequence-classification", "loss": "chunked:64"})", "--loss",
            "not over tokens"},
           {"gpt2", R"({"zero": 3})", "--zero", "without --world"},
           {"gpt2", R"({"offload_to": "disk"})", "--offload-to", "without --offload"},
           {"gpt2", R"({"checkpointing_kind": "reentrant"})", "--checkpointing-kind",
            "without --checkpointing"},
           {"gpt2", R"({"rounding": "stochastic"})", "--rounding", "in float32"},
           {"gpt2", R"({"mode": "inference", "optimizer": "sgd"})", "--optimizer",
            "nothing is trained"},
           {"gpt2", R"({"mode": "generate", "clip": 1.0})", "--clip", "nothing is trained"}})
    EXPECT_THAT(answer(model, settings, option),
                AllOf(HasSubstr(std::string(option) + " means nothing for "), HasSubstr(why)))
        << model << " " << settings;
}

TEST(CheckMeaning, AcceptsSettingsWithAnEffect) {
  using Case = std::tuple<const char*, const char*, const char*>;
  for (const auto& [model, settings, option] : std::vector<Case>{
           {"gpt2", R"({"seq": 10})", "--seq"},
           {"vit-base", R"({"image": 384})", "--image"},
           {"vit-base", R"({"attention": "eager"})", "--attention"},
           {"t5-small", R"({"target_seq": 10})", "--target-seq"},
           {"gpt2", R"({"zero": 3, "world": 4})", "--zero"},
           {"gpt2", R"({"zero": 0})", "--zero"},
           {"gpt2", R"({"offload": ["optimizer"], "offload_to": "disk"})", "--offload-to"},
           {"gpt2", R"({"dtype": "bfloat16", "rounding": "stochastic"})", "--rounding"}})
    EXPECT_EQ(answer(model, settings, option), "fine") << model << " " << settings;
}

}  // namespace
}  // namespace headroom::model
