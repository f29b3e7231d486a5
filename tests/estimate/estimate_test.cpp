#include "headroom/estimate/estimate.h"

#include <gmock/gmock.h>

#include "headroom/dryrun/dry_run.h"

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

}  // namespace
}  // namespace headroom::estimate
