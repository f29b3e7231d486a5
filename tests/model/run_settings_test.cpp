#include "headroom/model/run_settings.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "headroom/base/error.h"

namespace headroom::model {
namespace {

using ::testing::HasSubstr;

std::string refusal(const char* json) {
  try {
    (void)settings_from_json(Json::parse(json));
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Settings, GoToJsonAndBack) {
  Settings settings;
  settings.task = Task::seq2seq_lm;
  settings.batch = 4;
  settings.seq = 2048;
  settings.dtype = Dtype::bfloat16;
  settings.optimizer = Optimizer::sgd_momentum;
  settings.form = OptimizerForm::foreach;
  settings.checkpoint_every = 2;
  settings.clip = 1.0;
  settings.loss = LossForm::chunked;
  settings.loss_chunk = 1024;
  settings.lora_rank = 8;
  settings.lora_targets = {"q_proj", "v_proj"};
  settings.offload = {.optimizer = true, .activations = true, .to = OffloadTo::disk};
  settings.zero_gradients = true;
  EXPECT_EQ(settings_from_json(to_json(settings)), settings);
  EXPECT_EQ(settings_from_json(to_json(Settings())), Settings());
  EXPECT_EQ(settings_from_json(Json::object()), Settings());
}

TEST(Settings, AreSpelledAsOnTheCommandLine) {
  const Json json = to_json(settings_from_json(Json::parse(
      R"({"checkpointing": "every:3", "loss": "chunked:512", "optimizer": "adafactor-hf",
          "offload": ["optimizer"], "zero_grad": "zero", "attention": "eager"})")));
  EXPECT_EQ(json["checkpointing"], "every:3");
  EXPECT_EQ(json["loss"], "chunked:512");
  EXPECT_EQ(json["optimizer"], "adafactor-hf");
  EXPECT_EQ(json["offload"], Json::array({"optimizer"}));
  EXPECT_EQ(json["zero_grad"], "zero");
  EXPECT_EQ(json["attention"], "eager");
}

// `--dtype bf16` was told "try float32", while --autocast takes only bf16.
TEST(Settings, TakeBothNamesOfATypeOfNumbers) {
  const auto settings = [](const char* json) { return settings_from_json(Json::parse(json)); };
  EXPECT_EQ(settings(R"({"dtype": "bf16"})").dtype, Dtype::bfloat16);
  EXPECT_EQ(settings(R"({"dtype": "fp16"})").dtype, Dtype::float16);
  EXPECT_EQ(settings(R"({"dtype": "fp32"})").dtype, Dtype::float32);
  EXPECT_EQ(settings(R"({"autocast": "bfloat16"})").autocast, Autocast::bf16);
  EXPECT_EQ(settings(R"({"autocast": "float16"})").autocast, Autocast::fp16);
  EXPECT_THAT(refusal(R"({"dtype": "fp8"})"), HasSubstr("received 'fp8'"));
}

TEST(Settings, NameTheNearestOfUnknownWordsAndKeys) {
  EXPECT_THAT(refusal(R"({"optimizer": "adamv"})"), HasSubstr("try adamw"));
  EXPECT_THAT(refusal(R"({"bach": 4})"), HasSubstr("try batch"));
  EXPECT_THAT(refusal(R"({"checkpointing": "every:0"})"), HasSubstr("every:K"));
  EXPECT_THAT(refusal(R"({"loss": "chunked"})"), HasSubstr("chunked:N"));
  EXPECT_THAT(refusal(R"({"offload": ["weights"]})"), HasSubstr("weights"));
  EXPECT_THAT(refusal(R"({"zero_grad": "sometimes"})"), HasSubstr("zero_grad"));
  EXPECT_THAT(refusal(R"({"batch": "four"})"), HasSubstr("batch"));
}

TEST(Settings, RefuseNumbersThatMeanNothing) {
  EXPECT_THAT(refusal(R"({"batch": 0})"), HasSubstr("at least 1 for `batch`"));
  EXPECT_THAT(refusal(R"({"seq": -5})"), HasSubstr("`seq`"));
  EXPECT_THAT(refusal(R"({"zero": 4})"), HasSubstr("`zero`"));
  EXPECT_THAT(refusal(R"({"clip": -1})"), HasSubstr("`clip`"));
  EXPECT_EQ(refusal(R"({"clip": 0.5, "zero": 3, "batch": 1})"), "accepted");
}

// 2^32 + 1 steps were one step, 2.7 rows two, and 10^15 rows a peak of fewer than 0 bytes.
TEST(Settings, RefuseNumbersThatTheyCannotHoldExactly) {
  EXPECT_THAT(refusal(R"({"steps": 4294967297})"), HasSubstr("4294967297"));
  EXPECT_THAT(refusal(R"({"world": 4294967298})"), HasSubstr("4294967298"));
  EXPECT_THAT(refusal(R"({"batch": 2.7})"), HasSubstr("2.7"));
  EXPECT_THAT(refusal(R"({"seq": 18446744073709551615})"), HasSubstr("18446744073709551615"));
  EXPECT_THAT(refusal(R"({"batch": 1000000000000000})"), HasSubstr("at most 16777216 for `batch`"));
  EXPECT_THAT(refusal(R"({"checkpointing": "every:4294967297"})"), HasSubstr("every:K"));
  EXPECT_THAT(refusal(R"({"batch": 4096, "seq": 1048576})"),
              HasSubstr("expected a smaller batch x length, received '4096 rows of 1048576'"));
  EXPECT_THAT(refusal(R"({"batch": 1000, "image": 16384})"),
              HasSubstr("1000 images with a side of 16384"));
  EXPECT_EQ(refusal(R"({"batch": 4, "seq": 1048576})"), "accepted");
  EXPECT_EQ(refusal(R"({"batch": 1048576, "image": 224})"), "accepted");
}

TEST(Settings, NeedARankForTargets) {
  EXPECT_THAT(refusal(R"({"lora_targets": ["q"]})"), HasSubstr("`lora_rank`"));
  EXPECT_EQ(refusal(R"({"lora_targets": ["q"], "lora_rank": 8})"), "accepted");
}

}  // namespace
}  // namespace headroom::model
