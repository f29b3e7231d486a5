#include "headroom/oom/detail/progress.h"

#include <gtest/gtest.h>

namespace headroom::oom::detail {
namespace {

// True if the program continues after the line "boom".
bool goes_on(std::string_view text, bool ended_well = false) {
  const auto lines = lines_of(text);
  std::size_t boom = 0;
  while (lines.at(boom).text != "boom") ++boom;
  return goes_on(lines, progress_in(lines), boom, ended_well);
}

TEST(Progress, IsThatStepsRise) {
  EXPECT_TRUE(goes_on("step 3 loss 1\nboom\nstep 4 loss 1\nstep 5 loss 1\n"));
  EXPECT_TRUE(goes_on("step 900 loss 1\nboom\nstep 1 loss 5\nstep 2 loss 4\n")) << "began anew";
  EXPECT_FALSE(goes_on("step 3 loss 1\nboom\nstep 3 loss 0.9\n"));
  EXPECT_FALSE(goes_on("step 3 loss 1\nstep 4 loss 1\nboom\nstep 5 loss 1\n")) << "one is too few";
}

TEST(Progress, OfAProgramThatEndedWellNeedsOneStep) {
  EXPECT_TRUE(goes_on("step 3 loss 1\nboom\nstep 4 loss 1\n", true));
}

TEST(Progress, IsNoBarThatIsDrawnAgain) {
  EXPECT_FALSE(
      goes_on(" 5%|# | 5/99 [1.0s, 3it/s]\nboom\n 5%|# | 5/99 [1.1s, 2it/s]\n"
              " 5%|# | 5/99 [1.2s, 1it/s]\n 5%|# | 5/99 [1.3s, 1it/s]\n"));
  EXPECT_TRUE(
      goes_on("boom\n 5%|# | 5/99 [1s, 3it/s]\n 6%|# | 6/99 [2s, 2it/s]\n"
              " 7%|# | 7/99 [3s, 1it/s]\n"));
}

TEST(Progress, OfAnotherRankIsNone) {
  EXPECT_FALSE(goes_on("[rank1]: boom\n[rank0]: step 4 loss 1\n[rank0]: step 5 loss 1\n"));
  EXPECT_FALSE(goes_on("boom\n[rank0]: step 4 loss 1\n[rank0]: step 5 loss 1\n"));
  EXPECT_FALSE(goes_on("rank 1 | boom\nrank 0 | step 4 loss 1\nrank 0 | step 5 loss 1\n"));
  EXPECT_FALSE(goes_on("job-1  | boom\njob-0  | step 4 loss 1\njob-0  | step 5 loss 1\n"));
  EXPECT_TRUE(goes_on("[rank1]: boom\n[rank1]: step 4 loss 1\n[rank1]: step 5 loss 1\n"));
}

TEST(Progress, IsTheNextItemAfterOneThatFailed) {
  EXPECT_TRUE(goes_on("trial 6 failed\nboom\ntrial 7 finished\n"));
  EXPECT_FALSE(goes_on("boom\njob 88123 finished\n")) << "the job itself, perhaps";
  EXPECT_TRUE(goes_on("boom\ntrial 7 finished\ntrial 8 finished\n"));
}

TEST(Progress, IsNoSummary) {
  EXPECT_FALSE(goes_on("boom\nwandb: epoch 3\nwandb: step 12 loss 1\nwandb: step 13 loss 2\n"));
}

}  // namespace
}  // namespace headroom::oom::detail
