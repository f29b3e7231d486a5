#include "headroom/config/model_variants.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/base/error.h"
#include "headroom/config/resolved.h"
#include "headroom/config/training_keys.h"
#include "tests/support/temporary_folder.h"

namespace headroom::config {
namespace {

using namespace headroom::literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<ModelVariant> variants(const std::string& text) {
  return resolve(training_keys(), {.overrides = {"model_variants=" + text}})
      .model_variants("model_variants");
}

std::string refusal_of(const std::string& text) {
  try {
    (void)variants(text);
  } catch (const UsageError& error) {
    return error.sentence();
  }
  return "no UsageError";
}

TEST(ModelVariants, AreModelsByTheMemoryOfTheSmallestCard) {
  EXPECT_THAT(variants("[{min_total: 40GiB, model: A, batch_size: 16}, {model: B}]"),
              ElementsAre(ModelVariant{"A", 40_GiB, 16}, ModelVariant{"B", Bytes{}, {}}));
  EXPECT_THAT(variants("[{min_total: 0, model: A}]"), ElementsAre(ModelVariant{"A", {}, {}}));
  EXPECT_THAT(variants(""), IsEmpty());
}

TEST(ModelVariants, MayStandInABlockOfAFile) {
  const headroom::testing::TemporaryFolder folder;
  const auto file = folder.write("my.yaml",
                                 "model_variants:\n"
                                 "  - min_total: 40GiB\n"
                                 "    model: A\n"
                                 "  - model: B\n");
  const Resolved config = resolve(training_keys(), {.file = file});
  EXPECT_THAT(config.model_variants("model_variants"),
              ElementsAre(ModelVariant{"A", 40_GiB, {}}, ModelVariant{"B", Bytes{}, {}}));
}

TEST(ModelVariants, AreRefusedWithTheReason) {
  EXPECT_THAT(refusal_of("[{min_total: 40GiB}]"), HasSubstr("a variant with its model"));
  EXPECT_THAT(refusal_of("[A]"), HasSubstr("a variant with its model"));
  EXPECT_THAT(refusal_of("A"), HasSubstr("a list of variants"));
  EXPECT_THAT(refusal_of("[{model: A, min_totals: 1GiB}]"), HasSubstr("try min_total"));
  EXPECT_THAT(refusal_of("[{model: A, min_total: 40}]"), HasSubstr("try 40GiB"));
  EXPECT_THAT(refusal_of("[{model: A, batch_size: 0}]"), HasSubstr("1 or more"));
  EXPECT_THAT(refusal_of("[{model: [A, B]}]"), HasSubstr("one value"));
  EXPECT_THAT(refusal_of("[{model: A}, {model: B}]"), HasSubstr("differ in min_total"));
}

}  // namespace
}  // namespace headroom::config
