// Waiting for room: what one look decides, what needs two, and how it ends.

#include "headroom/gpu/wait.h"

#include <gtest/gtest.h>

#include "tests/gpu/fixtures/scripted_source.h"

namespace headroom::gpu {
namespace {

using namespace fixtures;

constexpr Seconds kLongestTest{10.0};
constexpr DeviceRequest kTenGib{.need = 10_GiB};

class WaitForGpu : public ::testing::Test {
 protected:
  void TearDown() override {
    sampler_.reset();
    source_->release_all();
    EXPECT_TRUE(is_left_alone(std::move(source_)));
  }
  void start(int cards = 2, Seconds hang_after = Seconds(0.3)) {
    source_ = std::make_shared<ScriptedSource>(cards);
    sampler_options_.hang_after = hang_after;
  }
  WaitResult wait(const DeviceRequest& request, const WaitOptions& options) {
    sampler_.emplace(source_, sampler_options_);
    return wait_for_gpu(*sampler_, request, options);
  }
  // All cards hold so much, from now on.
  void fill(Bytes used) {
    for (int i = 0; i < 2; ++i) source_->used(i, {used});
  }

  SamplerOptions sampler_options_{.keep_sampling = false};
  std::shared_ptr<ScriptedSource> source_ = std::make_shared<ScriptedSource>(2);
  std::optional<Sampler> sampler_;
};

std::vector<int> indices(const WaitResult& result) {
  std::vector<int> picked;
  for (const auto& pick : result.selection.picked) picked.push_back(pick.card.index);
  return picked;
}

using Indices = std::vector<int>;

// ---- One look ----

TEST_F(WaitForGpu, TakesACardWithRoomAfterOneSample) {
  source_->used(0, {20_GiB});
  const WaitResult result = wait(kTenGib, {.timeout = Seconds(60)});
  EXPECT_EQ(indices(result), Indices{1});
  EXPECT_FALSE(result.timed_out || result.cancelled);
  EXPECT_LE(source_->memory_calls(1), 2) << "its own and the one the sampler begins with";
  EXPECT_LT(result.waited, kLongestTest);
}

TEST_F(WaitForGpu, WithoutATimeoutItLooksOnceAndSaysWhatIsMissing) {
  fill(20_GiB);
  const WaitResult result = wait(kTenGib, {});
  EXPECT_TRUE(result.timed_out && result.selection.picked.empty());
  EXPECT_EQ(result.selection.shortfall, 6_GiB);
  EXPECT_EQ(result.selection.holders.size(), 1u);
  EXPECT_LE(source_->memory_calls(0), 2);
}

TEST_F(WaitForGpu, OnlyCardsThatMayBeTakenAreTaken) {
  source_->used(0, {12_GiB});
  const auto first_only = [](Machine machine) {
    machine.cards.resize(1);
    return machine;
  };
  EXPECT_EQ(indices(wait(kTenGib, {.narrow = first_only})), Indices{0});
  EXPECT_EQ(indices(wait({.need = 13_GiB}, {.narrow = first_only})), Indices{});
}

TEST_F(WaitForGpu, UsesTheGivenFunctionForUsableMemory) {
  const auto second_is_leased = [](const Card& card) -> std::optional<Bytes> {
    return card.index == 1 ? 0_B : card.memory->free;
  };
  source_->used(0, {12_GiB});
  EXPECT_EQ(indices(wait(kTenGib, {.usable = second_is_leased})), Indices{0});
}

// ---- Two looks ----

TEST_F(WaitForGpu, AfterARecentEndTwoSamplesAtLeast200MillisecondsApartAreNeeded) {
  source_->used(0, {20_GiB});
  static_cast<void>(wait(kTenGib, {}));  // the sampler's own first sample is out of the way
  const std::size_t before = source_->look_times(1).size();
  const WaitResult result =
      wait_for_gpu(*sampler_, kTenGib, {.recent_ends = [](const Machine& machine) {
        return std::set<Uuid>{machine.cards.at(1).uuid};
      }});
  EXPECT_EQ(indices(result), Indices{1});
  const auto looks = source_->look_times(1);
  ASSERT_EQ(looks.size(), before + 2);
  EXPECT_GE(looks.back() - looks[before], std::chrono::milliseconds(200));
}

TEST_F(WaitForGpu, AnEndOnAnotherCardAsksForNothingMore) {
  source_->used(0, {20_GiB});
  static_cast<void>(wait(kTenGib, {}));
  const int before = source_->memory_calls(1);
  static_cast<void>(wait_for_gpu(*sampler_, kTenGib, {.recent_ends = [](const Machine& machine) {
    return std::set<Uuid>{machine.cards.at(0).uuid};
  }}));
  EXPECT_EQ(source_->memory_calls(1), before + 1);
}

// Memory of a process that ends comes back in steps, and may be gone again.
TEST_F(WaitForGpu, MemoryMissingFromTheSecondSampleIsNotTaken) {
  start(1);
  source_->used(0, {20_GiB});
  static_cast<void>(wait(kTenGib, {}));
  source_->used(0, {2_GiB, 20_GiB});
  const auto ended = [](const Machine& machine) {
    return std::set<Uuid>{machine.cards.at(0).uuid};
  };
  const WaitResult result = wait_for_gpu(*sampler_, kTenGib, {.recent_ends = ended});
  EXPECT_EQ(indices(result), Indices{});
  EXPECT_EQ(result.selection.shortfall, 6_GiB);
}

TEST_F(WaitForGpu, AfterAWaitTwoSamplesMustShowTheRoom) {
  fill(20_GiB);
  WaitOptions options{.timeout = Seconds(20), .interval = Seconds(0.05)};
  std::atomic<bool> freed{false};
  options.progress = [&](const WaitProgress&) {
    if (!freed.exchange(true)) source_->used(1, {0_GiB});
  };
  const WaitResult result = wait(kTenGib, options);
  EXPECT_EQ(indices(result), Indices{1});
  EXPECT_FALSE(result.timed_out);
  const auto looks = source_->look_times(1);
  EXPECT_GE(looks.back() - looks[looks.size() - 2], std::chrono::milliseconds(200));
}

TEST_F(WaitForGpu, TheSmallerOfTwoSamplesIsUsable) {
  start(1);
  static_cast<void>(wait({}, {}));
  source_->used(0, {2_GiB, 5_GiB});
  const auto ended = [](const Machine& machine) {
    return std::set<Uuid>{machine.cards.at(0).uuid};
  };
  const WaitResult result = wait_for_gpu(*sampler_, kTenGib, {.recent_ends = ended});
  EXPECT_EQ(result.selection.picked.at(0).usable, 19_GiB);
}

// ---- How a wait ends ----

TEST_F(WaitForGpu, TimesOutAndTellsItsProgressMeanwhile) {
  fill(20_GiB);
  std::vector<Seconds> told;
  WaitOptions options{.timeout = Seconds(0.3), .interval = Seconds(0.01)};
  options.progress = [&](const WaitProgress& progress) {
    told.push_back(progress.elapsed);
    EXPECT_EQ(progress.selection.shortfall, 6_GiB);
    EXPECT_EQ(progress.request.need, 10_GiB);
    EXPECT_EQ(progress.timeout, Seconds(0.3));
  };
  const WaitResult result = wait(kTenGib, options);
  EXPECT_TRUE(result.timed_out && result.selection.picked.empty());
  EXPECT_GE(result.waited, Seconds(0.3));
  EXPECT_LT(result.waited, kLongestTest);
  ASSERT_FALSE(told.empty());
  EXPECT_TRUE(std::is_sorted(told.begin(), told.end()));
  EXPECT_GE(source_->memory_calls(0), 3) << "each interval asks the driver anew";
}

TEST_F(WaitForGpu, ATimeoutShorterThanTheIntervalStillLooksAtItsEnd) {
  fill(20_GiB);
  WaitOptions options{.timeout = Seconds(0.2), .interval = Seconds(30)};
  options.progress = [&](const WaitProgress&) { source_->used(0, {0_GiB}); };
  EXPECT_EQ(indices(wait(kTenGib, options)), Indices{0});
}

TEST_F(WaitForGpu, CancellingEndsALongWait) {
  fill(20_GiB);
  std::stop_source cancel;
  WaitOptions options{.timeout = Seconds(3600), .interval = Seconds(600)};
  options.cancel = cancel.get_token();
  options.progress = [&](const WaitProgress&) { cancel.request_stop(); };
  const WaitResult result = wait(kTenGib, options);
  EXPECT_TRUE(result.cancelled && !result.timed_out);
  EXPECT_TRUE(result.selection.picked.empty());
  EXPECT_LT(result.waited, kLongestTest);
}

TEST_F(WaitForGpu, CancellingFromAnotherThreadEndsItToo) {
  fill(20_GiB);
  std::stop_source cancel;
  WaitOptions options{.timeout = Seconds(3600), .interval = Seconds(600)};
  options.cancel = cancel.get_token();
  std::thread other([&] {
    EXPECT_TRUE(eventually([&] { return source_->process_calls(1) > 0; }));
    cancel.request_stop();
  });
  const WaitResult result = wait(kTenGib, options);
  other.join();
  EXPECT_TRUE(result.cancelled);
  EXPECT_LT(result.waited, kLongestTest);
}

// Ctrl-C between the two samples once started the job.
TEST_F(WaitForGpu, CancellingBetweenTheTwoSamplesPicksNothing) {
  std::stop_source cancel;
  WaitOptions options{.timeout = Seconds(60)};
  options.cancel = cancel.get_token();
  options.recent_ends = [&](const Machine& machine) {
    cancel.request_stop();
    return std::set<Uuid>{machine.cards.at(0).uuid, machine.cards.at(1).uuid};
  };
  const WaitResult result = wait(kTenGib, options);
  EXPECT_TRUE(result.cancelled);
  EXPECT_EQ(indices(result), Indices{});
}

TEST_F(WaitForGpu, DoesNotWaitForMoreThanTheMachineHas) {
  const WaitOptions patient{.timeout = Seconds(3600), .interval = Seconds(600)};
  const WaitResult too_large = wait({.need = 25_GiB}, patient);
  EXPECT_TRUE(too_large.selection.picked.empty() && too_large.selection.cannot_be_met);
  const WaitResult too_many = wait({.need = 1_GiB, .count = 3}, patient);
  EXPECT_TRUE(too_many.selection.picked.empty() && too_many.selection.cannot_be_met);
  start(0);
  const WaitResult without_cards = wait({.need = 1_GiB}, patient);
  EXPECT_TRUE(without_cards.selection.picked.empty());
  EXPECT_FALSE(without_cards.selection.sentence.empty());
  // Once none of the three flags said why; only the sentence did.
  EXPECT_TRUE(without_cards.selection.cannot_be_met);
}

// ---- The CPU ----

TEST_F(WaitForGpu, TheCpuIsTakenOnlyAfterTheWait) {
  fill(20_GiB);
  int told = 0;
  WaitOptions options{.timeout = Seconds(0.2), .interval = Seconds(0.05)};
  options.progress = [&](const WaitProgress& progress) {
    ++told;
    EXPECT_FALSE(progress.selection.cpu);
  };
  const WaitResult result = wait({.need = 10_GiB, .allow_cpu = true}, options);
  EXPECT_TRUE(result.selection.cpu && result.selection.picked.empty());
  EXPECT_TRUE(result.selection.sentence.starts_with("taking the CPU: "))
      << result.selection.sentence;
  EXPECT_GE(told, 1);
}

// A machine without a GPU once waited for nothing and then took nothing.
TEST_F(WaitForGpu, TheCpuIsTakenAtOnceWhereWaitingCannotHelp) {
  const WaitOptions patient{.timeout = Seconds(3600), .interval = Seconds(600)};
  EXPECT_TRUE(wait({.need = 25_GiB, .allow_cpu = true}, patient).selection.cpu);
  start(0);
  EXPECT_TRUE(wait({.need = 1_GiB, .allow_cpu = true}, patient).selection.cpu);
  EXPECT_FALSE(wait({.need = 1_GiB}, patient).selection.cpu);
}

// ---- A driver that hangs ----

TEST_F(WaitForGpu, ADriverThatHangsDecidesNothingAndItsAgeIsSaid) {
  source_->memory_gate(0).close();
  source_->memory_gate(1).close();
  const WaitResult result = wait({.need = 1_GiB, .allow_cpu = true}, {});
  EXPECT_TRUE(result.selection.stale && result.selection.picked.empty());
  EXPECT_FALSE(result.selection.cpu);
  EXPECT_TRUE(result.selection.sentence.starts_with("data is 3 s old: the driver does not answer"))
      << result.selection.sentence;
  EXPECT_GE(result.waited, Seconds(2.9));
  EXPECT_LT(result.waited, kLongestTest);
}

TEST_F(WaitForGpu, ADriverThatHangsWhileItOpensIsSaidTheSameWay) {
  source_->opening.close();
  const WaitResult result = wait({.need = 1_GiB}, {});
  EXPECT_TRUE(result.selection.stale);
  EXPECT_TRUE(result.selection.sentence.starts_with("data is 3 s old"))
      << result.selection.sentence;
}

TEST_F(WaitForGpu, OneHangingCardLeavesTheOtherToTake) {
  source_->memory_gate(0).close();
  const WaitResult result = wait({.need = 1_GiB}, {.timeout = Seconds(60)});
  EXPECT_EQ(indices(result), Indices{1});
}

TEST_F(WaitForGpu, ADriverThatAnswersWithinThePatienceIsHeard) {
  source_->memory_gate(0).close();
  source_->memory_gate(1).close();
  std::thread driver([&] {
    EXPECT_TRUE(source_->memory_gate(0).holds_somebody());
    EXPECT_TRUE(source_->memory_gate(1).holds_somebody()) << "the first was given up";
    source_->release_all();
  });
  const WaitResult result = wait({.need = 1_GiB}, {});
  driver.join();
  EXPECT_EQ(result.selection.picked.size(), 1u) << result.selection.sentence;
}

}  // namespace
}  // namespace headroom::gpu
