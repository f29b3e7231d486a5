#include "headroom/estimate/estimate.h"

#include <gmock/gmock.h>

#include "headroom/dryrun/dry_run.h"
#include "headroom/estimate/advice.h"

namespace headroom::estimate {
namespace {

TEST(EstimateMemory, SpareIsWhatIsLeftOfTheCardAtThePeak) {
  const formula::NamedModel gpt2 = formula::model_named("gpt2");
  const Estimate fits = estimate_memory(gpt2, {}, dryrun::card_for("24GiB"));
  EXPECT_TRUE(fits.fits());
  EXPECT_EQ(fits.spare(), parse_bytes("24GiB") - fits.report.peak.process);

  const Estimate does_not = estimate_memory(gpt2, {}, dryrun::card_for("2GiB"));
  EXPECT_FALSE(does_not.fits());
  EXPECT_LT(does_not.spare(), Bytes{0});
}

TEST(EstimateMemory, SaysEverySizeThatItAssumed) {
  const auto settings_of = [](const char* model) {
    return estimate_memory(formula::model_named(model), {}, dryrun::card_for("unlimited")).settings;
  };
  const formula::Settings t5 = settings_of("t5-small"), vit = settings_of("vit-base"),
                          resnet = settings_of("resnet18");
  EXPECT_EQ(t5.seq, 512);
  EXPECT_EQ(t5.target_seq, 512);
  EXPECT_EQ(t5.image, std::nullopt);
  EXPECT_EQ(vit.image, 224) << "the configuration's";
  EXPECT_EQ(vit.seq, std::nullopt);
  EXPECT_EQ(resnet.image, 224) << "nobody said anything";
}

TEST(Advise, SaysOfEachChangeWhatItsDryRunShows) {
  const formula::NamedModel gpt2 = formula::model_named("gpt2");
  const gpu::SimulatedCard card = dryrun::card_for("3GiB");
  formula::Settings settings;
  settings.batch = 4;
  const Estimate now = estimate_memory(gpt2, settings, card);
  ASSERT_FALSE(now.fits());
  const std::vector<Advice> advice = advise(gpt2, now);
  ASSERT_FALSE(advice.empty());
  EXPECT_LE(advice.size(), 3U);
  for (const Advice& one : advice) {
    const Estimate then = estimate_memory(gpt2, one.settings, card);
    EXPECT_GT(one.saves, Bytes{0}) << one.change;
    EXPECT_EQ(one.saves, now.report.peak.allocated - then.report.peak.allocated) << one.change;
    EXPECT_EQ(one.fits, then.fits()) << one.change;
    EXPECT_EQ(one.reserved, then.report.peak.reserved) << one.change;
  }
}

}  // namespace
}  // namespace headroom::estimate
