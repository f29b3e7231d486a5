#include "headroom/estimate/estimate.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "headroom/dryrun/dry_run.h"
#include "headroom/estimate/advice.h"
#include "headroom/forecast/closed_form.h"
#include "headroom/model/can_run.h"

namespace headroom::estimate {
namespace {

TEST(EstimateMemory, SpareIsWhatIsLeftOfTheCardAtThePeak) {
  const model::NamedModel gpt2 = model::model_named("gpt2");
  const Estimate fits = estimate_memory(gpt2, {}, dryrun::card_for("24GiB"));
  EXPECT_TRUE(fits.fits());
  EXPECT_EQ(fits.spare(), parse_bytes("24GiB") - fits.report.peak.process);

  const Estimate does_not = estimate_memory(gpt2, {}, dryrun::card_for("2GiB"));
  EXPECT_FALSE(does_not.fits());
  EXPECT_LT(does_not.spare(), Bytes{0});
}

TEST(EstimateMemory, SaysEverySizeThatItAssumed) {
  const auto settings_of = [](const char* model) {
    return estimate_memory(model::model_named(model), {}, dryrun::card_for("unlimited")).settings;
  };
  const model::Settings t5 = settings_of("t5-small"), vit = settings_of("vit-base"),
                        resnet = settings_of("resnet18");
  EXPECT_EQ(t5.seq, 512);
  EXPECT_EQ(t5.target_seq, 512);
  EXPECT_EQ(t5.image, std::nullopt);
  EXPECT_EQ(vit.image, 224) << "the configuration's";
  EXPECT_EQ(vit.seq, std::nullopt);
  EXPECT_EQ(resnet.image, 224) << "no --image was given";
}

TEST(Advise, SaysOfEachChangeWhatItsDryRunShows) {
  const model::NamedModel gpt2 = model::model_named("gpt2");
  const gpu::SimulatedCard card = dryrun::card_for("3GiB");
  model::Settings settings;
  settings.batch = 4;
  const Estimate now = estimate_memory(gpt2, settings, card);
  ASSERT_FALSE(now.fits());
  const std::vector<plan::Saving> advice = advise(gpt2, now);
  ASSERT_FALSE(advice.empty());
  EXPECT_LE(advice.size(), 3U);
  for (const plan::Saving& one : advice) {
    const Estimate then = estimate_memory(gpt2, one.settings, card);
    EXPECT_GT(one.saves, Bytes{0}) << one.option;
    EXPECT_EQ(one.saves, now.report.peak.allocated - then.report.peak.allocated) << one.option;
    EXPECT_EQ(one.fits, then.fits()) << one.option;
    EXPECT_EQ(one.needs, then.report.peak.reserved) << one.option;
    // The verdict counts the process: what a change needs and saves is told in that measure, too.
    EXPECT_EQ(one.process, then.report.peak.process) << one.option;
    EXPECT_EQ(one.saves_process, now.report.peak.process - then.report.peak.process);
  }
}

// Three lines, all "still too much", and not a word of what fits: LoRA over 4-bit weights.
TEST(Advise, NamesLoraOverQuantisedWeightsWhereNothingLighterFits) {
  const model::NamedModel model = model::model_named("llama-3.1-8b");
  const Estimate now = estimate_memory(model, {}, dryrun::card_for("16GiB"));
  const std::vector<plan::Saving> advice = advise(model, now);
  const auto fits = [](const plan::Saving& one) {
    return one.fits && one.can_run && one.settings.quantize != model::Quantize::none;
  };
  EXPECT_TRUE(std::any_of(advice.begin(), advice.end(), fits));
}

TEST(Advise, ChangesOnlyWhatMayBeChanged) {
  const model::NamedModel gpt2 = model::model_named("gpt2");
  model::Settings settings;
  settings.batch = 4;
  const Estimate now = estimate_memory(gpt2, settings, dryrun::card_for("3GiB"));
  const auto same_batch = [](const model::Settings& changed) { return changed.batch == 4; };
  for (const plan::Saving& one : advise(gpt2, now, {}, {.wanted = 8, .allows = same_batch}))
    EXPECT_EQ(one.settings.batch, 4) << one.option;
}

}  // namespace
}  // namespace headroom::estimate
