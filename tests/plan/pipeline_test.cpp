// Every list of passes of 2 to 8 stages and 1 to 32 parts, played as the stages do.
#include "headroom/plan/pipeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "headroom/base/error.h"

namespace headroom::plan {
namespace {

using List = std::vector<Pass>;

std::vector<List> lists(Pipeline pipeline, int stages, int parts) {
  std::vector<List> all;
  for (int stage = 0; stage < stages; ++stage)
    all.push_back(passes(pipeline, stage, stages, parts));
  return all;
}

// What border.h promises: a list of tensors is there when the neighbour has given it, and before a
// stage gives the next one in the same direction, the last one has been taken.
class Play {
 public:
  explicit Play(std::vector<List> all)
      : all_(std::move(all)), done_(all_.size()), forward_(all_.size()), backward_(all_.size()) {}

  // Whether all lists come to their ends.
  bool runs() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t stage = 0; stage < all_.size(); ++stage)
        while (can_run(stage)) {
          const Pass& pass = all_[stage][done_[stage]++];
          ++(pass.is_forward ? forward_ : backward_)[stage];
          moved = true;
        }
    }
    for (std::size_t stage = 0; stage < all_.size(); ++stage)
      if (done_[stage] != all_[stage].size()) return false;
    return true;
  }

 private:
  [[nodiscard]] bool can_run(std::size_t stage) const {
    if (done_[stage] == all_[stage].size()) return false;
    const Pass& pass = all_[stage][done_[stage]];
    const bool is_first = stage == 0, is_last = stage + 1 == all_.size();
    if (pass.is_forward)
      return (is_first || forward_[stage - 1] > pass.part) &&
             (is_last || forward_[stage + 1] >= pass.part);
    return (is_last || backward_[stage + 1] > pass.part) &&
           (is_first || backward_[stage - 1] >= pass.part);
  }

  const std::vector<List> all_;
  std::vector<std::size_t> done_;
  std::vector<int> forward_, backward_;  // passes done, by stage
};

TEST(Passes, RunEachPartOnceInOrderAndNeverWaitForEver) {
  for (const Pipeline pipeline : {Pipeline::one_by_one, Pipeline::gpipe})
    for (int stages = 2; stages <= 8; ++stages)
      for (int parts = 0; parts <= 32; ++parts) {
        SCOPED_TRACE(to_string(pipeline) + ", stages " + std::to_string(stages) + ", parts " +
                     std::to_string(parts));
        const auto all = lists(pipeline, stages, parts);
        for (int stage = 0; stage < stages; ++stage) {
          int forward = 0, backward = 0, most = 0;
          for (const Pass& pass : all[static_cast<std::size_t>(stage)]) {
            ASSERT_EQ(pass.part, pass.is_forward ? forward : backward);
            ++(pass.is_forward ? forward : backward);
            ASSERT_LE(backward, forward);
            most = std::max(most, forward - backward);
          }
          EXPECT_EQ(forward, parts);
          EXPECT_EQ(backward, parts);
          EXPECT_EQ(most, most_in_flight(pipeline, stage, stages, parts));
          if (pipeline == Pipeline::one_by_one) {
            EXPECT_LE(most, stages - stage);
          }
        }
        EXPECT_TRUE(Play(all).runs());
      }
}

// The play can tell: with two forward passes in the wrong order no stage gets further.
TEST(Passes, APlayFindsListsThatWaitForEachOther) {
  auto all = lists(Pipeline::one_by_one, 3, 4);
  std::swap(all[1][0], all[1][1]);
  EXPECT_FALSE(Play(all).runs());
}

// The last stage runs each part back at once, the first one when all others have it.
TEST(Passes, OneByOneIsWhatThePaperDraws) {
  const auto text = [](int stage) {
    std::string all;
    for (const Pass& pass : passes(Pipeline::one_by_one, stage, 3, 4))
      all += (pass.is_forward ? "F" : "B") + std::to_string(pass.part);
    return all;
  };
  EXPECT_EQ(text(0), "F0F1F2B0F3B1B2B3");
  EXPECT_EQ(text(1), "F0F1B0F2B1F3B2B3");
  EXPECT_EQ(text(2), "F0B0F1B1F2B2F3B3");
}

TEST(Passes, OneStageTakesEachPartForwardAndBackward) {
  const List all = passes(Pipeline::one_by_one, 0, 1, 3);
  ASSERT_EQ(all.size(), 6U);
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i].is_forward, i % 2 == 0);
    EXPECT_EQ(all[i].part, static_cast<int>(i / 2));
  }
}

TEST(Pipeline, HasNames) {
  for (const Pipeline one : {Pipeline::one_by_one, Pipeline::gpipe})
    EXPECT_EQ(pipeline_named(to_string(one)), one);
  EXPECT_THROW(static_cast<void>(pipeline_named("zigzag")), UsageError);
}

}  // namespace
}  // namespace headroom::plan
