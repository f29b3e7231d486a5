// The plans that `headroom train` takes, and what it says of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/base/file.h"
#include "headroom/base/text.h"
#include "tests/train/command_world.h"

namespace headroom::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class TrainPlan : public ::testing::Test {
 protected:
  // A GPT of 0.1 million parameters, batch 32.
  [[nodiscard]] Outcome tiny(const std::string& cards, const Arguments& more = {}) const {
    return world_.train(Arguments{"model=gpt-tiny", "dataset=synthetic",
                                  "out=" + world_.path("out"), "--gpus", "sim:1x" + cards} +
                        more);
  }
  [[nodiscard]] Outcome gpt2(const std::string& cards, const Arguments& more = {}) const {
    return world_.train(Arguments{"--dry-run", "model=full", "model.config=gpt2", "weights=random",
                                  "dataset=synthetic", "seq=1024", "batch_size=64", "--gpus",
                                  "sim:1x" + cards} +
                        more);
  }
  TrainingWorld world_;
};

// "3 parts, needs 18 MiB" on 28 MiB, and "2 parts, needs 34.1 MiB, and only 30 are free" on 30.
TEST_F(TrainPlan, FitsOnEachCardThatIsLargerThanOneOnWhichItFits) {
  bool fitted = false;
  for (const int size : {4, 6, 8, 12, 18, 28, 30, 32, 34, 36, 60}) {
    const Outcome outcome = tiny(std::to_string(size) + "MiB", {"--dry-run", "--json"});
    const Json answer = outcome.json();
    const bool fits = answer.at("fits").get<bool>();
    EXPECT_EQ(outcome.exit_code, fits ? 0 : 2) << size;
    EXPECT_TRUE(fits || !fitted) << size << " MiB: " << answer.dump();
    const bool is_allowed = answer.at("allowed_by").is_null();
    EXPECT_EQ(fits, is_allowed && answer.at("needed_bytes") <= answer.at("free_bytes"))
        << answer.dump();
    fitted = fits;
  }
  EXPECT_TRUE(fitted);
}

// "runs in 3 parts: micro-batch 11", then "smaller parts: 32 -> 15" before anything had failed,
// 11 in metrics.jsonl, 15 in the plan.
TEST_F(TrainPlan, HasOneNumberInAllThatIsSaidOfIt) {
  const Outcome outcome = tiny("30MiB", {"steps=2", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("in 3 parts: micro-batch 11; it needs"),
                                 Not(HasSubstr("smaller parts"))));
  EXPECT_THAT(events_of(outcome), ElementsAre("checkpoint"));
  EXPECT_EQ(outcome.json().at("plan").at("micro_batch"), 11);
  EXPECT_EQ(world_.metrics("out", "micro_batch")[0].at("micro_batch"), 11);
}

// "micro-batch 64; needs 103.30 GiB": 2.46 would have been enough.
TEST_F(TrainPlan, ThatDoesNotFitNamesTheLeastNeedAndTheKeyThatAllowsIt) {
  const Outcome outcome = gpt2("2GiB");
  EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("it needs at least 2.46 GiB, with micro-batch 1, "),
                                 HasSubstr("which min_batch_size=1 allows")));
  const Json answer = gpt2("2GiB", {"--json"}).json();
  EXPECT_EQ(answer.at("allowed_by"), "min_batch_size=1");
  const std::string enough =
      std::to_string(answer.at("needed_bytes").get<std::int64_t>() / 1048576) + "MiB";
  EXPECT_EQ(gpt2(enough, {"min_batch_size=1"}).exit_code, 0);
  EXPECT_EQ(gpt2(enough).exit_code, 2);
}

// The time of a step was that of the plain plan, and "about 0.0 s" of a small model.
TEST_F(TrainPlan, TellsTheTimeOfAStepWithWhatItAdds) {
  const auto seconds = [](const Outcome& outcome) {
    return outcome.json().at("step_s").get<double>();
  };
  const double plain = seconds(gpt2("200GiB", {"--json"})),
               again = seconds(gpt2("200GiB", {"--json", "gradient_checkpointing=true"})),
               chosen = seconds(gpt2("8GiB", {"--json"})),
               given = seconds(gpt2("8GiB", {"--json", "gradient_checkpointing=true"}));
  EXPECT_GT(again, 1.2 * plain);
  EXPECT_NEAR(chosen / given, 1, 0.05);
  // Those of the nearest cards in memory.
  EXPECT_EQ(gpt2("8GiB", {"--json"}).json().at("rates"), "RTX 3060 Ti");
  EXPECT_THAT(gpt2("24GiB").out, HasSubstr("with the times of RTX 3090"));
  EXPECT_THAT(tiny("1GiB", {"--dry-run"}).out,
              AllOf(HasSubstr(" ms a step"), Not(HasSubstr(" 0.0"))));
}

// The only advice was bfloat16, without its key, and with it the run ended with 76 again. The
// report had no parameters of the model.
TEST_F(TrainPlan, AfterAnOutOfMemoryTheAdviceNamesTheKeyThatHelps) {
  const Outcome outcome = tiny("4MiB", {"steps=2"});
  EXPECT_EQ(outcome.exit_code, 76) << outcome.err;
  EXPECT_THAT(outcome.err,
              AllOf(HasSubstr("allow it with min_batch_size=1"), HasSubstr(" parameters\n"),
                    Not(HasSubstr("autocast")), Not(HasSubstr("drop what"))));
  EXPECT_EQ(tiny("4MiB", {"steps=2", "min_batch_size=1"}).exit_code, 0);
}

// A run with min_batch_size=16 ended with 76, or began with 11 rows if another run had left that
// plan behind.
TEST_F(TrainPlan, OfAnEarlierRunObeysTheKeysOfToday) {
  EXPECT_EQ(tiny("20MiB", {"steps=2", "min_batch_size=1"}).exit_code, 0);
  const Outcome outcome = tiny("20MiB", {"steps=2", "min_batch_size=16"});
  EXPECT_EQ(outcome.exit_code, 76) << outcome.err;
  EXPECT_THAT(outcome.err, Not(HasSubstr("worked last time")));
}

TEST_F(TrainPlan, LeavesTheMarginThatIsAskedFor) {
  const auto micro_batch = [&](const char* margin) {
    const Outcome outcome = tiny("64MiB", {"--dry-run", "--json", margin});
    return outcome.json().at("plan").at("micro_batch").get<int>();
  };
  EXPECT_EQ(micro_batch("margin=1MiB"), 32);
  EXPECT_EQ(micro_batch("margin=0"), 32);
  EXPECT_LT(micro_batch("margin=50%"), 32);
  EXPECT_EQ(micro_batch("margin=40MiB"), micro_batch("margin=62.5%"));
  EXPECT_EQ(tiny("64MiB", {"--dry-run", "margin=512"}).exit_code, 64) << "MiB were meant";
}

// The heaviest plan was taken at once, and kept to the end, where no plan leaves 512 MiB.
TEST_F(TrainPlan, ComesBackAfterARefusalOnASmallCard) {
  const Outcome outcome =
      tiny("400MiB", {"steps=30", "eval_every=1000", "--inject", "oom@2000:lasting", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.err,
              AllOf(HasSubstr("smaller parts: micro-batch 32 -> micro-batch 16\n"),
                    HasSubstr("larger parts again: micro-batch 16 -> micro-batch 32")));
  EXPECT_EQ(outcome.json().at("plan").at("micro_batch"), 32);
}

// An evaluation began with the whole batch, whatever the steps had needed: two refusals in each
// run. Its parts were not in plan_schedule, so val_loss differed in the eighth digit.
TEST_F(TrainPlan, OfAnEvaluationFitsAndIsFollowedAgain) {
  const Outcome outcome = tiny("20MiB", {"steps=3", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(events_of(outcome), ElementsAre("checkpoint"));
  const std::string plans = outcome.json().at("plan_schedule").get<std::string>();
  EXPECT_THAT(read_file(plans).value_or(""), HasSubstr("\"evaluation\":{"));
  const Outcome again = tiny("1GiB", {"steps=3", "--json", "plan_schedule=" + plans});
  EXPECT_EQ(again.json().at("val_loss"), outcome.json().at("val_loss"));
  EXPECT_EQ(weights_of(again), weights_of(outcome));
}

// The page of a run that went on said "does not fit", in red.
TEST_F(TrainPlan, ThatSurvivedIsToldOnThePage) {
  const std::string page = world_.path("page.html");
  const Outcome outcome =
      tiny("64MiB", {"steps=3", "--inject", "oom@step=2:phase=backward", "--html", page, "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(read_file(page).value_or(""), HasSubstr(R"("survived":true)"));
  EXPECT_THAT(outcome.json().at("not_injected"), IsEmpty());
}

// A test of survival passed because its refusal lay behind the end of the run.
TEST_F(TrainPlan, AnInjectionThatDidNotHappenIsTold) {
  const Outcome outcome =
      tiny("64MiB", {"steps=1", "--inject", "oom@999999999", "--inject", "oom@300", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("--inject oom@999999999 did not happen"),
                                 Not(HasSubstr("oom@300 did not"))));
  EXPECT_THAT(outcome.json().at("not_injected"), ElementsAre("oom@999999999"));
}

}  // namespace
}  // namespace headroom::testing
