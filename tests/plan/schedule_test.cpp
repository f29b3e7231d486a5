#include "headroom/plan/schedule.h"

#include <gtest/gtest.h>

#include <vector>

#include "headroom/base/error.h"

namespace headroom::plan {
namespace {

using Stages = std::vector<StageTimes>;

const std::vector<Pipeline> kBoth{Pipeline::one_by_one, Pipeline::gpipe};

// (S - 1) / (m + S - 1): Narayanan et al., "Efficient Large-Scale Language Model Training on GPU
// Clusters", SC 2021, section 2.2.
TEST(Play, EqualStagesWithFreeLinksHaveTheBubbleOfTheFormula) {
  for (const Pipeline pipeline : kBoth)
    for (int stages = 1; stages <= 16; ++stages)
      for (int parts = 1; parts <= 64; ++parts) {
        const Played step =
            play(Stages(static_cast<std::size_t>(stages), {0.013, 0.029}), pipeline, parts);
        const double bubble = (stages - 1.0) / (parts + stages - 1.0);
        for (std::size_t stage = 0; stage < step.busy.size(); ++stage)
          ASSERT_NEAR(step.idle_share(stage), bubble, 1e-9) << stages << " " << parts;
      }
}

TEST(Play, OneStageTakesItsPassesAndTheOptimizer) {
  EXPECT_NEAR(
      play({{.forward = 1, .backward = 2, .optimizer = 0.5}}, Pipeline::one_by_one, 4).seconds,
      4 * 3 + 0.5, 1e-12);
}

// Two stages and two parts, by hand. 1F1B: stage 1 runs F0 1..4, B0 4..9, F1 9..12, B1 12..17;
// stage 0 runs F0 0..1, F1 1..2 (its tensors wait until F0's were taken at 1), B0 9..11, B1 17..19.
TEST(Play, UnevenStagesWaitForTheSlowest) {
  const Stages uneven{{.forward = 1, .backward = 2}, {.forward = 3, .backward = 5}};
  EXPECT_NEAR(play(uneven, Pipeline::one_by_one, 2).seconds, 19, 1e-12);
  // GPipe: F0 1..4, F1 4..7, B0 7..12, B1 12..17.
  EXPECT_NEAR(play(uneven, Pipeline::gpipe, 2).seconds, 19, 1e-12);
}

// F0 0..1, handed on until 1.5, F0 1.5..2.5, B0 2.5..4.5, handed on until 5, B0 5..7.
TEST(Play, AHandOverDelaysBothWays) {
  const Stages linked{{.forward = 1, .backward = 2, .to_next = 0.5}, {.forward = 1, .backward = 2}};
  EXPECT_NEAR(play(linked, Pipeline::one_by_one, 1).seconds, 7, 1e-12);
}

TEST(Play, TheLastBackwardPassHidesTheSumOfGradients) {
  const auto with = [](double sum) {
    return play({{.forward = 1, .backward = 2, .sum_of_gradients = sum}}, Pipeline::one_by_one, 3)
        .seconds;
  };
  EXPECT_NEAR(with(2), with(0), 1e-12);
  EXPECT_NEAR(with(5), with(0) + 3, 1e-12);
}

TEST(Play, TheSlowestStageBoundsAStepFromBelow) {
  for (const Pipeline pipeline : kBoth) {
    const Stages stages{{0.2, 0.4, 0.01}, {0.9, 0.8, 0.02}, {0.1, 0.1, 0.3}, {0.5, 1.0}};
    for (int parts = 1; parts < 20; ++parts)
      EXPECT_GE(play(stages, pipeline, parts).seconds, parts * 1.7);
  }
}

TEST(Play, RefusesNothing) {
  EXPECT_THROW((void)play({}, Pipeline::gpipe, 1), UsageError);
  EXPECT_THROW((void)play({{1, 1}}, Pipeline::gpipe, 0), UsageError);
}

}  // namespace
}  // namespace headroom::plan
