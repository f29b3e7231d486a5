#include "headroom/plan/cheapest_help.h"

#include <gmock/gmock.h>

#include "headroom/model/model_catalogue.h"

namespace headroom::plan {
namespace {

using namespace headroom::forecast;

using namespace headroom::literals;
using ::testing::Each;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::Not;

model::Settings settings_of(std::int64_t batch, std::int64_t seq,
                            model::Dtype dtype = model::Dtype::float32) {
  model::Settings settings;
  settings.batch = batch;
  settings.seq = seq;
  settings.dtype = dtype;
  return settings;
}

TEST(CheapestHelp, IsOneTechniqueIfThatIsEnough) {
  const model::NamedModel model = model::model_named("gpt2");
  const auto advice = cheapest_help(model.config, settings_of(16, 1024), {.room = 12_GiB});
  ASSERT_EQ(advice.size(), 3);
  EXPECT_THAT(advice, Each(Field(&Saving::fits, true)));
  for (const Saving& one : advice) EXPECT_LE(one.needs, 12_GiB) << one.option;
}

TEST(CheapestHelp, PutsTechniquesThatKeepTheTrainingResultFirst) {
  const model::NamedModel model = model::model_named("gpt2");
  const auto advice = cheapest_help(model.config, settings_of(16, 1024), {.room = 12_GiB}, 100);
  const auto fits = [](const Saving& one) { return one.fits; };
  EXPECT_TRUE(std::is_partitioned(advice.begin(), advice.end(), fits));
  const auto enough_end = std::partition_point(advice.begin(), advice.end(), fits);
  ASSERT_GT(enough_end - advice.begin(), 2);
  EXPECT_TRUE(std::is_partitioned(advice.begin(), enough_end,
                                  [](const Saving& one) { return !one.changes_training; }));
}

TEST(CheapestHelp, CombinesTechniquesIfNoneAloneIsEnough) {
  const model::NamedModel model = model::model_named("llama-3.1-8b");
  const auto advice =
      cheapest_help(model.config, settings_of(4, 4096, model::Dtype::bfloat16), {.room = 20_GiB});
  ASSERT_FALSE(advice.empty());
  EXPECT_TRUE(advice.front().fits);
  EXPECT_THAT(advice.front().option, HasSubstr(" --"));
}

TEST(CheapestHelp, OffersOnlyWhatCanRun) {
  const model::NamedModel model = model::model_named("llama-3.1-8b");
  const SavingOptions options{.room = 20_GiB, .can_run = [](const model::Settings& s) {
                                return s.quantize == model::Quantize::none && !s.offload.any();
                              }};
  for (const Saving& one :
       cheapest_help(model.config, settings_of(1, 1024, model::Dtype::bfloat16), options, 20)) {
    EXPECT_THAT(one.option, Not(HasSubstr("quantize"))) << one.option;
    EXPECT_THAT(one.option, Not(HasSubstr("offload"))) << one.option;
  }
}

TEST(CheapestHelp, ShowsTheLargestSavingsIfNothingIsEnough) {
  const model::NamedModel model = model::model_named("llama-3.1-70b");
  const auto advice = cheapest_help(model.config, settings_of(8, 4096), {.room = 1_GiB});
  ASSERT_EQ(advice.size(), 3);
  EXPECT_THAT(advice, Each(Field(&Saving::fits, false)));
}

// For mixtral-8x7b on an H100, three lines said "still too much", though LoRA over 4-bit weights
// fits.
TEST(EnoughButCannotRun, IsOnlyLoraOver4BitWeightsForALargeModel) {
  const model::NamedModel model = model::model_named("mixtral-8x7b");
  const SavingOptions options{
      .card = gpu::find_card("H100 80GB"), .room = 79_GiB, .can_run = [](const model::Settings& s) {
        return s.quantize == model::Quantize::none && !s.offload.any();
      }};
  const std::vector<Saving> found = enough_but_cannot_run(model.config, {}, options);
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found.front().option, "--quantize 4bit --lora-rank 8");
  for (const Saving& one : found) {
    EXPECT_TRUE(one.fits) << one.option;
    EXPECT_FALSE(one.can_run) << one.option;
    EXPECT_LE(one.needs, 79_GiB) << one.option;
  }
}

TEST(EnoughButCannotRun, IsTheFastestOfBothKindsTheFasterFirst) {
  const model::NamedModel model = model::model_named("gpt2-xl");
  const SavingOptions options{.room = 8_GiB, .can_run = [](const model::Settings& s) {
                                return s.quantize == model::Quantize::none && !s.offload.any();
                              }};
  const auto found = enough_but_cannot_run(model.config, {}, options);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_TRUE(found[0].changes_training);
  EXPECT_FALSE(found[1].changes_training);
  EXPECT_LT(found[0].time_factor, found[1].time_factor);
}

TEST(EnoughButCannotRun, IsEmptyIfNothingIsEnough) {
  const model::NamedModel model = model::model_named("llama-3.1-70b");
  EXPECT_TRUE(enough_but_cannot_run(model.config, {}, {.room = 1_GiB}).empty());
}

TEST(CheapestHelp, ChangesOnlyWhatMayBeChanged) {
  const model::NamedModel model = model::model_named("gpt2");
  const SavingOptions options{.room = 12_GiB,
                              .allows = [](const model::Settings& s) { return s.batch == 16; }};
  const auto advice = cheapest_help(model.config, settings_of(16, 1024), options, 20);
  ASSERT_FALSE(advice.empty());
  for (const Saving& one : advice) EXPECT_EQ(one.settings.batch, 16) << one.option;
}

TEST(JoinedOptions, LetTheLaterOneHold) {
  EXPECT_EQ(joined_options("--checkpointing every:2 --dtype bfloat16", "--checkpointing full"),
            "--dtype bfloat16 --checkpointing full");
  EXPECT_EQ(joined_options("no --use-cache", "--loss chunked:1024"),
            "no --use-cache --loss chunked:1024");
}

}  // namespace
}  // namespace headroom::plan
