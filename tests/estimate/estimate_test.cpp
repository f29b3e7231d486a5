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

}  // namespace
}  // namespace headroom::estimate
