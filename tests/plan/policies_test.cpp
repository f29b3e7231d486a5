#include "headroom/plan/policies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/base/error.h"
#include "headroom/forecast/closed_form.h"
#include "headroom/model/model_catalogue.h"

namespace headroom::plan {
namespace {

using namespace headroom::forecast;

using namespace headroom::literals;
using ::testing::HasSubstr;

constexpr long long kBillion = 1'000'000'000;

// ---- What a plan may use ----

TEST(Plannable, LeavesFivePercentOrHalfAGiBWhicheverIsMore) {
  EXPECT_EQ(plannable(80_GiB), 76_GiB);
  EXPECT_EQ(plannable(4_GiB), 4_GiB - 512_MiB);
  EXPECT_EQ(plannable(10240_MiB), 9728_MiB) << "where both margins are the same";
}

TEST(Plannable, IsNothingOfAFullCardAndNeverNegative) {
  EXPECT_EQ(plannable(512_MiB), 0_B);
  EXPECT_EQ(plannable(100_MiB), 0_B);
  EXPECT_EQ(plannable(0_B), 0_B);
  EXPECT_EQ(plannable(Bytes{} - 3_GiB), 0_B);
}

TEST(ResidentBudget, IsSeventyPercentUnlessSaidOtherwise) {
  EXPECT_EQ(resident_budget(100_GiB), 70_GiB);
  EXPECT_EQ(resident_budget(100_GiB, 0.5), 50_GiB);
}

TEST(CardsFor, WholeLayersFillOneCardAfterAnother) {
  EXPECT_EQ(cards_for({1_GiB}, 70_GiB), 1);
  EXPECT_EQ(cards_for({40_GiB, 30_GiB}, 70_GiB), 1);
  EXPECT_EQ(cards_for({40_GiB, 30_GiB, 1_B}, 70_GiB), 2);
  EXPECT_EQ(cards_for({40_GiB, 40_GiB, 40_GiB}, 70_GiB), 3);  // 120 GiB would be two of 70
  EXPECT_EQ(cards_for({}, 70_GiB), 1);
  EXPECT_EQ(cards_for({1_GiB, 71_GiB}, 70_GiB), std::nullopt);
  EXPECT_THROW((void)cards_for({1_GiB}, 0_B), UsageError);
}

// 80 layers of 855,654,400 parameters, 8 bytes each: 6.375 GiB a layer, so 3 on a card of 31.36 GiB
// at 70 %, 21.95 GiB.
TEST(CardsFor, LlamaOf70BillionInBfloat16Needs27Cards) {
  model::Settings settings;
  settings.dtype = model::Dtype::bfloat16;
  const auto forecast = forecast::forecast_of(model::model_named("70B").config, settings);
  const auto layers = resident_by_layer(forecast);
  ASSERT_EQ(layers.size(), 80U);
  EXPECT_NEAR(static_cast<double>(layers[40].count) / (1LL << 30), 6.375, 0.001);
  EXPECT_EQ(cards_for(layers, resident_budget(Bytes{33'672'740'864})), 27);
}

// ---- The quick estimate ----

TEST(QuickEstimate, IsFourAndFourAndEightBytesAParameterInFloat32WithAdam) {
  const QuickEstimate quick = quick_estimate(model::model_named("gpt2").config, {});
  EXPECT_EQ(quick.weights.count, 4 * quick.parameters);
  EXPECT_EQ(quick.gradients.count, 4 * quick.parameters);
  EXPECT_EQ(quick.optimizer.count, 8 * quick.parameters);
  EXPECT_GT(quick.activations.count, 0);
  EXPECT_EQ(quick.total(), quick.weights + quick.gradients + quick.optimizer + quick.activations);
  EXPECT_THAT(quick.why, HasSubstr("(4 weight + 4 gradient + 8 optimizer)"));
}

TEST(QuickEstimate, HasHalfTheBytesInHalfPrecisionAndNoStatesWithSgd) {
  model::Settings settings;
  settings.dtype = model::Dtype::bfloat16;
  settings.optimizer = model::Optimizer::sgd;
  const QuickEstimate quick = quick_estimate(model::model_named("gpt2").config, settings);
  EXPECT_EQ(quick.weights.count, 2 * quick.parameters);
  EXPECT_EQ(quick.gradients.count, 2 * quick.parameters);
  EXPECT_EQ(quick.optimizer.count, 0);
}

TEST(QuickEstimate, CountsFrozenParametersAsWeightsAlone) {
  model::Settings settings;
  settings.lora_rank = 8;
  const QuickEstimate quick = quick_estimate(model::model_named("llama-2-7b").config, settings);
  EXPECT_EQ(quick.trainable_parameters, 4'194'304);
  EXPECT_EQ(quick.weights.count, 4 * quick.parameters);
  EXPECT_EQ(quick.gradients.count, 4 * quick.trainable_parameters);
  EXPECT_EQ(quick.optimizer.count, 8 * quick.trainable_parameters);
}

// ---- The batch ----

TEST(BatchOfSize, HasLowerBoundsThatAreInclusive) {
  EXPECT_EQ(batch_of_size(0), 16);
  EXPECT_EQ(batch_of_size(kBillion - 1), 16);
  EXPECT_EQ(batch_of_size(kBillion), 8);
  EXPECT_EQ(batch_of_size(3 * kBillion - 1), 8);
  EXPECT_EQ(batch_of_size(3 * kBillion), 4);
  EXPECT_EQ(batch_of_size(10 * kBillion - 1), 4);
  EXPECT_EQ(batch_of_size(10 * kBillion), 2);
  EXPECT_EQ(batch_of_size(20 * kBillion - 1), 2);
  EXPECT_EQ(batch_of_size(20 * kBillion), 1);
  EXPECT_EQ(batch_of_size(405 * kBillion), 1);
}

TEST(BatchBySize, IsTheTablesWhereThereIsRoom) {
  const BatchChoice choice = batch_by_size(model::model_named("gpt2").config, {}, 200_GiB);
  EXPECT_EQ(choice.batch, 16);
  EXPECT_THAT(choice.why, HasSubstr("below 1 B parameters: 16 a replica"));
}

TEST(BatchBySize, IsBoundedByMemory) {
  const model::ModelConfig gpt2 = model::model_named("gpt2").config;
  const auto needs = [&](std::int64_t batch) {
    model::Settings settings;
    settings.batch = batch;
    return forecast_of(gpt2, settings).reserved;
  };
  EXPECT_EQ(batch_by_size(gpt2, {}, needs(16)).batch, 16);
  EXPECT_EQ(batch_by_size(gpt2, {}, needs(16) - 1_B).batch, 15);
  EXPECT_EQ(batch_by_size(gpt2, {}, needs(1)).batch, 1);
  const BatchChoice none = batch_by_size(gpt2, {}, needs(1) - 1_B);
  EXPECT_FALSE(none.fits());
  EXPECT_THAT(none.why, HasSubstr("not even 1 fits"));
}

TEST(BatchBySimpleFormula, IsWhatIsLeftOverTwoAndAHalfTimesTheWeights) {
  EXPECT_EQ(batch_by_simple_formula(24_GiB, 2_GiB).batch, 4) << "22 / 5 = 4.4";
  EXPECT_EQ(batch_by_simple_formula(12_GiB, 2_GiB).batch, 2) << "10 / 5";
  EXPECT_EQ(batch_by_simple_formula(12_GiB).batch, 2) << "10 / 3.75, with 1.5 GiB of weights";
  EXPECT_THAT(batch_by_simple_formula(12_GiB).why, HasSubstr("not known"));
}

TEST(BatchBySimpleFormula, DoesNotFitBelowOneAndIsNeverZeroInSilence) {
  EXPECT_EQ(batch_by_simple_formula(7_GiB, 2_GiB).batch, 1) << "5 / 5";
  for (const Bytes total : {7_GiB - 1_B, 2_GiB, 1_GiB}) {
    const BatchChoice choice = batch_by_simple_formula(total, 2_GiB);
    EXPECT_FALSE(choice.fits());
    EXPECT_THAT(choice.why, HasSubstr("does not fit"));
  }
  EXPECT_THROW((void)batch_by_simple_formula(24_GiB, 0_B), UsageError);
}

// ---- The variant ----

TEST(VariantByMemory, IsTheLargestThatTheSmallestCardHasEnoughFor) {
  const std::vector<Variant> variants{{40_GiB, "large"}, {0_B, "small"}};
  EXPECT_EQ(variant_by_memory(variants, 80_GiB).model, "large");
  EXPECT_EQ(variant_by_memory(variants, 40_GiB).model, "large") << "inclusive";
  EXPECT_EQ(variant_by_memory(variants, 40_GiB - 1_B).model, "small");
  EXPECT_THAT(variant_by_memory(variants, 24_GiB).why,
              HasSubstr("the smallest card has 24.00 GiB"));
}

TEST(VariantByMemory, SaysWhereNoneIsForCardsThatSmall) {
  const VariantChoice choice = variant_by_memory({{40_GiB, "large"}}, 24_GiB);
  EXPECT_EQ(choice.model, "");
  EXPECT_THAT(choice.why, HasSubstr("less than any variant"));
  EXPECT_THROW((void)variant_by_memory({}, 24_GiB), UsageError);
}

// ---- The strategy ----

TEST(StrategyBySize, HasLowerBoundsThatAreInclusive) {
  const auto of = [](long long parameters) { return strategy_by_size(parameters, {}, 4).strategy; };
  EXPECT_EQ(of(kBillion - 1), Strategy::one_gpu);
  EXPECT_EQ(of(kBillion), Strategy::data_parallel);
  EXPECT_EQ(of(10 * kBillion - 1), Strategy::data_parallel);
  EXPECT_EQ(of(10 * kBillion), Strategy::split_quantised);
  EXPECT_EQ(of(20 * kBillion - 1), Strategy::split_quantised);
  EXPECT_EQ(of(20 * kBillion), Strategy::split_4bit_offloaded);
}

TEST(StrategyBySize, ChangesTheSettingsAsItSays) {
  EXPECT_EQ(strategy_by_size(kBillion / 2, {}, 4).settings, model::Settings());
  const StrategyChoice parallel = strategy_by_size(7 * kBillion, {}, 4);
  EXPECT_EQ(parallel.settings.world, 4);
  EXPECT_EQ(parallel.replicas, 4);
  EXPECT_EQ(parallel.stages, 1);
  const StrategyChoice split = strategy_by_size(13 * kBillion, {}, 4);
  EXPECT_EQ(split.replicas, 1);
  EXPECT_EQ(split.stages, 4);
  EXPECT_EQ(split.settings.zero, 0);
  EXPECT_EQ(split.settings.quantize, model::Quantize::int8);
  EXPECT_FALSE(split.settings.offload.any());
  const StrategyChoice all = strategy_by_size(70 * kBillion, {}, 4);
  EXPECT_EQ(all.settings.quantize, model::Quantize::int4);
  EXPECT_TRUE(all.settings.offload.parameters);
  EXPECT_THAT(all.why, HasSubstr("70.00 B, 20 B parameters or more: split, in 4 bit"));
}

}  // namespace
}  // namespace headroom::plan
