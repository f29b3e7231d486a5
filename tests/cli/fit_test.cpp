// `headroom fit` as a process: headroom, which becomes headroom-engine.
#include <gmock/gmock.h>

#include "tests/cli/with_engine.h"

namespace headroom {
namespace {

using ::testing::AllOf;
using testing::Arguments;
using testing::fit;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Outcome;

// Both were left out, on the screen and in the document.
TEST(FitCommand, SaysWhatASizeMeantAndWhatAPolicyDecided) {
  const Outcome outcome =
      fit({"350M", "--policy", "strategy", "--max-batch", "1", "--gpus", "sim:1x24GiB"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("the shape of gpt2-medium"), HasSubstr("one GPU")));
}

TEST(FitCommand, ProbesItsAnswerAndTheNext) {
  const Outcome outcome = fit({"gpt2", "--seq", "1024", "--gpus", "sim:1x12GiB", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json document = outcome.json();
  const auto most = document.at("max_batch").get<std::int64_t>();
  EXPECT_FALSE(document.at("capped").get<bool>());
  EXPECT_LE(document.at("probes").size(), 6);
  std::map<std::int64_t, bool> fits;
  for (const Json& probe : document.at("probes"))
    fits[probe.at("batch").get<std::int64_t>()] = probe.at("fits").get<bool>();
  EXPECT_TRUE(fits.at(most));
  EXPECT_FALSE(fits.at(most + 1));
  EXPECT_EQ(document.at("recommended_batch").get<std::int64_t>(),
            std::max<std::int64_t>(1, static_cast<std::int64_t>(0.9 * static_cast<double>(most))));
}

TEST(FitCommand, ReturnsTwoIfNothingFits) {
  const Outcome outcome = fit({"gpt2-xl", "--gpus", "sim:1x8GiB", "--json"});
  EXPECT_EQ(outcome.exit_code, 2);
  const Json json = outcome.json();
  EXPECT_TRUE(json.at("max_batch").is_null());
  // And nothing was said of what would help.
  EXPECT_THAT(fit({"gpt2-xl", "--gpus", "sim:1x8GiB"}).out,
              AllOf(HasSubstr("not even a batch of 1\n"), HasSubstr("\nWhat would ")));
  for (const Json& one : json.at("advice"))
    EXPECT_THAT(one.at("change").get<std::string>(), Not(HasSubstr("--batch")));
}

TEST(FitCommand, RefusesAValueForTheSizeThatItSearches) {
  const Outcome batch = fit({"gpt2", "--batch", "4", "--gpus", "sim:1x8GiB"});
  EXPECT_EQ(batch.exit_code, 64);
  EXPECT_THAT(batch.err, HasSubstr("--batch has no meaning while fit searches for the largest"));
  EXPECT_EQ(fit({"gpt2", "--seq", "4", "--over", "seq", "--gpus", "sim:1x8GiB"}).exit_code, 64);
  EXPECT_THAT(fit({"gpt2", "--max-batch", "many", "--gpus", "sim:1x8GiB"}).err,
              HasSubstr("expected a whole number from 1 to 16777216, received 'many'"));
}

TEST(FitCommand, NeedsACard) {
  const Outcome outcome = fit({"gpt2"});
  EXPECT_EQ(outcome.exit_code, 64);
  EXPECT_THAT(outcome.err, HasSubstr("a card to fit into"));
}

// 2^40 rows ended as "a bug in Headroom": no tensor can be that large.
TEST(FitCommand, TakesNoMoreRowsThanASettingMayHave) {
  EXPECT_EQ(fit({"gpt2", "--gpus", "sim:1x8GiB", "--min-batch", "1099511627776"}).exit_code, 64);
  EXPECT_EQ(fit({"gpt2", "--gpus", "sim:1x8GiB", "--max-batch", "16777217"}).exit_code, 64);
}

// The others were not mentioned.
TEST(FitCommand, UsesTheCardWithTheLeastUsableMemoryAndSaysSo) {
  const Arguments asked{"gpt2", "--max-batch", "1", "--gpus", "RTX 4090", "--gpus", "A100 80GB"};
  EXPECT_THAT(fit(asked).out,
              AllOf(HasSubstr("of 2 cards, fit uses the one with the least usable memory"),
                    HasSubstr("on NVIDIA GeForce RTX 4090")));
  EXPECT_THAT(fit({"gpt2", "--max-batch", "1", "--gpus", "sim:8x24GiB"}).out,
              Not(HasSubstr("least usable")));
}

TEST(FitCommand, FindsTheLongestSequenceToo) {
  const Outcome outcome =
      fit({"gpt2", "--batch", "1", "--over", "seq", "--gpus", "sim:1x24GiB", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.json().at("max_seq"), 1024) << "GPT-2 has no more positions";
  const Outcome told = fit({"gpt2", "--over", "seq", "--gpus", "sim:1x24GiB"});
  EXPECT_THAT(told.out, HasSubstr("or the model's maximum)"));
}

}  // namespace
}  // namespace headroom
