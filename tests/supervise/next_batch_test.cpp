// Which batch is tried next, and how soon the right one is found.

#include "headroom/supervise/next_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "headroom/base/error.h"

namespace headroom::supervise {
namespace {

using namespace literals;
using ::testing::HasSubstr;

Try worked(long long batch, Bytes peak, Bytes limit) {
  return {.batch = batch, .peak = peak, .limit = limit};
}
Try ran_out(long long batch) {
  return {.batch = batch, .judgement = {.verdict = oom::Verdict::gpu_oom, .confidence = 1}};
}
Try ran_out(long long batch, Bytes peak, Bytes asked, Bytes limit) {
  Try one = ran_out(batch);
  one.judgement.asked = asked;
  one.peak = peak;
  one.limit = limit;
  return one;
}

long long next(const std::vector<Try>& tried, long long batch = 64, long long accumulation = 1,
               long long min_batch = 1) {
  const NextBatch next = next_batch(tried, batch, accumulation, min_batch);
  EXPECT_EQ(next.batch.has_value(), next.accumulation.has_value());
  if (next.batch) {
    EXPECT_EQ(*next.batch * *next.accumulation, batch * accumulation);
  }
  return next.batch.value_or(0);
}

TEST(NextBatch, KeepsTheEffectiveBatchExactly) {
  const NextBatch next = next_batch({ran_out(48, 20_GiB, 20_GiB, 24_GiB)}, 48, 2, 1);
  EXPECT_EQ(next.batch, 24);  // 0.9 x 48 x 24/40 is 25.9
  EXPECT_EQ(next.accumulation, 4);
  EXPECT_THAT(next.why, HasSubstr("batch 48 needs at least 40.00 GiB, and 24.00 GiB may be used"));
  EXPECT_THAT(next.why, HasSubstr("24 x 4 instead of 48 x 2"));
}

// It said "16 x 4 instead of 32 x 2" of a program that accumulates nothing.
TEST(NextBatch, NamesOnlyTheBatchWithoutAnAccumulation) {
  const NextBatch next = next_batch({ran_out(64), ran_out(32)}, 64, {}, 1);
  EXPECT_EQ(next.batch, 16);
  EXPECT_FALSE(next.accumulation);
  EXPECT_THAT(next.why, ::testing::EndsWith(": now 16 instead of 32"));
}

TEST(NextBatch, HalvesWithoutFigures) {
  EXPECT_EQ(next({ran_out(64)}), 32);
  EXPECT_EQ(next({ran_out(60)}, 60), 30);
  EXPECT_EQ(next({ran_out(64, 10_GiB, 1_GiB, 24_GiB)}), 32) << "no more than there was";
}

TEST(NextBatch, IsAtLeastOneStepDownAndNeverAboveNineTenthsOfTheFigure) {
  EXPECT_EQ(next({ran_out(60, 24_GiB, 1_MiB, 24_GiB)}, 60), 30);
  EXPECT_EQ(next({ran_out(100, 24_GiB, 1_MiB, 24_GiB)}, 100, 9), 75) << "90 is just too much";
}

TEST(NextBatch, APrimeEffectiveBatchLeavesOnlyOne) {
  EXPECT_EQ(next({ran_out(7, 20_GiB, 5_GiB, 24_GiB)}, 7), 1);
  EXPECT_EQ(next({ran_out(7, 20_GiB, 5_GiB, 24_GiB)}, 7, 1, 2), 0);
}

TEST(NextBatch, StopsAtTheSmallestAllowed) {
  const NextBatch none = next_batch({ran_out(8)}, 64, 1, 8);
  EXPECT_FALSE(none.batch || none.accumulation);
  EXPECT_EQ(none.why, "batch 8 is the smallest that may be tried");
  EXPECT_EQ(next({ran_out(64, 20_GiB, 400_GiB, 24_GiB)}, 64, 1, 8), 8) << "before it gives up";
  EXPECT_THAT(next_batch({ran_out(7)}, 7, 1, 2).why,
              HasSubstr("no batch from 2 to below 7 divides the effective batch 7"));
}

TEST(NextBatch, TwoTriesShowThePartThatDoesNotDependOnTheBatch) {
  // 20 GiB and 1 GiB a sample: 4 of them fit into 24 GiB.
  const std::vector<Try> tried{ran_out(64, 24_GiB, 60_GiB, 24_GiB),
                               ran_out(16, 24_GiB, 12_GiB, 24_GiB)};
  EXPECT_EQ(next(tried, 64, 3), 3) << "a margin of 5 %";
  EXPECT_THAT(next_batch(tried, 64, 3, 1).why, HasSubstr("20.00 GiB plus 1.00 GiB per sample"));
}

TEST(NextBatch, ATryThatWorkedOnALargerCardIsAPointOfTheLine) {
  EXPECT_EQ(next({worked(32, 36_GiB, 80_GiB), ran_out(64, 20_GiB, 48_GiB, 24_GiB)}, 64), 16)
      << "4 GiB and 1 GiB a sample: 20 fit";
}

TEST(NextBatch, StaysBelowABatchThatRanOutWithNoLessMemory) {
  EXPECT_EQ(next({ran_out(8, 40_GiB, 1_GiB, 40_GiB), ran_out(64, 24_GiB, 1_GiB, 24_GiB)}), 4);
  EXPECT_LE(next({ran_out(8, 24_GiB, 1_GiB, 24_GiB), ran_out(64, 24_GiB, 1_GiB, 24_GiB)}), 4);
  EXPECT_GT(next({ran_out(8, 12_GiB, 1_GiB, 12_GiB), ran_out(64, 48_GiB, 1_GiB, 48_GiB)}), 8)
      << "it had less then";
}

TEST(NextBatch, InvalidValuesAreRefused) {
  EXPECT_THROW((void)next_batch({ran_out(1)}, 0, 1, 1), UsageError);
  EXPECT_THROW((void)next_batch({ran_out(1)}, 1, 2'000'000'000, 1), UsageError);
  EXPECT_THROW((void)next_batch({}, 1, 1, 1), InternalError);
  EXPECT_EQ(next({ran_out(1)}, 1), 0);
  EXPECT_EQ(next({ran_out(1'000'000'000)}, 1'000'000'000, 1'000'000'000), 500'000'000);
  EXPECT_EQ(next({ran_out(999'999'937)}, 999'999'937, 999'999'937), 1) << "a prime";
}

TEST(BatchUpTo, BeginsWithWhatWorkedBefore) {
  EXPECT_EQ(batch_up_to(20, 64, 2, 1).batch, 16);
  EXPECT_EQ(batch_up_to(20, 64, 2, 1).accumulation, 8);
  EXPECT_FALSE(batch_up_to(5, 7, 1, 2).batch);
}

// ---- Whole searches: need = fixed + each x batch ----

struct Search {
  int tries = 0;
  long long reached = 0;  // 0: none fits
};

// `shown`: how much of what is missing the program's error shows, from nothing to all of it.
template <typename Shown>
Search search(long long batch, long long accumulation, double fixed, double each, double limit,
              const Shown& shown) {
  std::vector<Try> tried;
  long long now = batch;
  while (true) {
    const double need = fixed + each * static_cast<double>(now);
    const int tries = static_cast<int>(tried.size()) + 1;
    if (need <= limit) return {tries, now};
    const double missing = 1 + (need - limit) * shown();
    tried.push_back(ran_out(now, Bytes(static_cast<std::int64_t>(limit)),
                            Bytes(static_cast<std::int64_t>(missing)),
                            Bytes(static_cast<std::int64_t>(limit))));
    const NextBatch next = next_batch(tried, batch, accumulation, 1);
    if (!next.batch) return {tries, 0};
    EXPECT_LT(*next.batch, now) << next.why;
    EXPECT_EQ(*next.batch * *next.accumulation, batch * accumulation);
    now = *next.batch;
  }
}

// The largest that fits and divides.
long long best(long long batch, long long accumulation, double fixed, double each, double limit) {
  for (long long b = batch; b > 0; --b) {
    const bool divides = (batch * accumulation) % b == 0;
    if (divides && fixed + each * static_cast<double>(b) <= limit) return b;
  }
  return 0;
}

TEST(NextBatch, From4096ToOneTakesAtMostEightTriesWithAnyFigures) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> share(0, 1);
  const std::vector<std::pair<double, double>> shows{{0, 0}, {0, 0.02}, {0, 1}, {1, 1}, {0.5, 0.6}};
  int worst = 0;
  for (int round = 0; round < 2000; ++round) {
    const auto [low, high] = shows[random() % shows.size()];
    const double limit = 24e9, fixed = share(random) * 0.99 * limit;
    const double each = (limit - fixed) / (1 + 0.9 * share(random));  // one fits, two do not
    const long long batch = round % 2 == 0 ? 4096 : 1 + static_cast<long long>(random() % 4096);
    const auto result =
        search(batch, 1 + static_cast<long long>(random() % 8), fixed, each, limit,
               [&, from = low, to = high] { return from + (to - from) * share(random); });
    EXPECT_EQ(result.reached, 1);
    worst = std::max(worst, result.tries);
  }
  EXPECT_LE(worst, 8);
  std::printf("from up to 4096 down to 1: at most %d tries\n", worst);
}

TEST(NextBatch, WithTrueFiguresItLandsAboveHalfOfTheLargestThatFitsInFewTries) {
  std::mt19937 random(2);
  std::uniform_real_distribution<double> share(0, 1);
  std::vector<double> reached;
  std::vector<int> tries(9);
  for (int round = 0; round < 4000; ++round) {
    const long long batch = 2 + static_cast<long long>(random() % 4095);
    const long long accumulation = 1 + static_cast<long long>(random() % 8);
    const double limit = 1e9 + 79e9 * share(random), fixed = share(random) * 0.95 * limit;
    const double each = (limit - fixed) / (1 + share(random) * static_cast<double>(batch - 1));
    const long long most = best(batch, accumulation, fixed, each, limit);
    const auto result = search(batch, accumulation, fixed, each, limit, [] { return 1.0; });
    ASSERT_LT(result.tries, 6);
    ++tries[static_cast<std::size_t>(result.tries)];
    reached.push_back(static_cast<double>(result.reached) / static_cast<double>(most));
  }
  std::sort(reached.begin(), reached.end());
  const auto at = [&](double part) {
    return reached[static_cast<std::size_t>(part * static_cast<double>(reached.size() - 1))];
  };
  std::printf(
      "tries 1..5: %d %d %d %d %d; reached of the largest: 1 %% %.2f, 5 %% %.2f, 10 %% %.2f, "
      "median %.2f\n",
      tries[1], tries[2], tries[3], tries[4], tries[5], at(0.01), at(0.05), at(0.1), at(0.5));
  EXPECT_GE(at(0.01), 0.5);
  EXPECT_GE(at(0.5), 0.9);
}

}  // namespace
}  // namespace headroom::supervise
