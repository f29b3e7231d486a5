// The detector against the texts of real failures: how many it judges right, and whether it ever
// takes another failure for an out-of-memory.
#include "tests/oom/corpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <set>

namespace headroom::testing {
namespace {

struct Score {
  int texts = 0, right = 0, false_alarms = 0, doubtful = 0;
  std::string wrong;
  [[nodiscard]] double share() const { return texts == 0 ? 0 : static_cast<double>(right) / texts; }
};

oom::Judgement judged(const FailureText& failure) {
  return oom::classify({.text = failure.text,
                        .type_names = {},
                        .exit_code = failure.exit_code,
                        .signal = {},
                        .host = {}});
}

// Doubtful texts (label `ambiguous`) are shown, but do not count.
Score score_of(const std::function<bool(const FailureText&)>& wanted) {
  Score score;
  for (const FailureText& failure : failure_texts()) {
    if (!wanted(failure)) continue;
    const oom::Judgement judgement = judged(failure);
    const bool right = is_right(failure, judgement);
    if (!right)
      score.wrong += failure.id + " (" + failure.label + "): " + to_string(judgement.verdict) +
                     " by: " + judgement.evidence + "\n";
    if (failure.label == "ambiguous") {
      ++score.doubtful;
      continue;
    }
    ++score.texts;
    score.right += right ? 1 : 0;
    score.false_alarms += is_false_alarm(failure, judgement) ? 1 : 0;
  }
  return score;
}

void print(const char* half, const Score& score) {
  std::printf("%s: %d of %d right (%.1f %%), %d false alarms; %d doubtful ones beside\n%s", half,
              score.right, score.texts, 100 * score.share(), score.false_alarms, score.doubtful,
              score.wrong.c_str());
}

TEST(FailureCorpus, TheHalfUsedForWritingTheRules) {
  const Score score = score_of([](const FailureText& failure) { return !is_held_out(failure); });
  print("written on", score);
  EXPECT_GE(score.share(), 0.97);
  EXPECT_EQ(score.false_alarms, 0);
}

TEST(FailureCorpus, TheHeldOutHalf) {
  const Score score = score_of(is_held_out);
  print("held out", score);
  EXPECT_GE(score.share(), 0.97);
  EXPECT_EQ(score.false_alarms, 0);
}

TEST(FailureCorpus, IsLargeAndEveryTextHasItsSource) {
  std::set<std::string> ids;
  for (const FailureText& failure : failure_texts()) {
    ids.insert(failure.id);
    EXPECT_FALSE(failure.source.empty()) << failure.id;
    EXPECT_FALSE(failure.kind.empty()) << failure.id;
    EXPECT_THAT(failure.label,
                ::testing::AnyOf("oom", "host_oom", "not_oom", "stall", "ambiguous"));
  }
  EXPECT_EQ(ids.size(), failure_texts().size()) << "an id appears twice";
  EXPECT_GE(ids.size(), 200U);
}

// Evidence is useful only if it can be found in the log again.
TEST(FailureCorpus, EvidenceStandsInTheText) {
  for (const FailureText& failure : failure_texts()) {
    const oom::Judgement judgement = judged(failure);
    if (judgement.verdict != oom::Verdict::gpu_oom && judgement.verdict != oom::Verdict::host_oom)
      continue;
    EXPECT_NE(failure.text.find(judgement.evidence), std::string::npos) << failure.id;
    EXPECT_FALSE(judgement.evidence.empty()) << failure.id;
  }
}

}  // namespace
}  // namespace headroom::testing
