// Samples go on whatever a driver does: a call that hangs affects its card only.

#include "headroom/gpu/sampler.h"

#include <gtest/gtest.h>

#include <optional>
#include <stdexcept>

#include "headroom/gpu/nvml.h"
#include "tests/gpu/fixtures/fake_driver.h"
#include "tests/gpu/fixtures/scripted_source.h"

namespace headroom::gpu {
namespace {

using namespace fixtures;

constexpr SamplerOptions kFast{
    .interval = Seconds(0.005), .process_interval = Seconds(0.005), .hang_after = Seconds(30)};
constexpr SamplerOptions kGivesUpSoon{
    .interval = Seconds(0.005), .process_interval = Seconds(0.005), .hang_after = Seconds(0.1)};
constexpr SamplerOptions kOnlyWhenAsked{.keep_sampling = false, .hang_after = Seconds(0.3)};

// Nothing here takes that long unless something waits that must not.
constexpr Seconds kFarTooLong{10.0};

class WithScript : public ::testing::Test {
 protected:
  void TearDown() override {
    sampler_.reset();
    source_->release_all();
    EXPECT_TRUE(is_left_alone(std::move(source_))) << "a thread did not end";
  }
  void start(const SamplerOptions& options) { sampler_.emplace(source_, options); }
  Card snapshot_of(std::size_t i) {
    const Machine machine = sampler_->snapshot();
    return i < machine.cards.size() ? machine.cards[i] : Card{};
  }
  // Snapshots until the card is such.
  bool becomes(std::size_t i, const std::function<bool(const Card&)>& such) {
    return eventually([&] { return such(snapshot_of(i)); });
  }

  std::shared_ptr<ScriptedSource> source_ = std::make_shared<ScriptedSource>(3);
  std::optional<Sampler> sampler_;
};

bool is_stuck(const Card& card) {
  return card.stuck;
}

// ---- A driver that answers ----

TEST_F(WithScript, FreshGivesDataNewerThanTheCall) {
  start(kFast);
  for (int i = 0; i < 20; ++i) {
    const auto asked = Clock::now();
    const Machine machine = sampler_->fresh(kFarTooLong);
    ASSERT_EQ(machine.cards.size(), 3u);
    for (const Card& card : machine.cards) {
      EXPECT_GE(card.sampled.value(), asked);
      EXPECT_GE(card.processes_sampled.value(), asked);
      EXPECT_TRUE(card.memory && card.processes && !card.stuck);
    }
  }
}

TEST_F(WithScript, FreshShowsWhatTheDriverTellsAfterTheCall) {
  start(kFast);
  for (int gib = 1; gib < 20; ++gib) {
    source_->used(1, {gib * 1_GiB});
    EXPECT_EQ(sampler_->fresh(kFarTooLong).cards.at(1).memory->used, gib * 1_GiB);
  }
}

TEST_F(WithScript, SnapshotsAreRenewedByThemselves) {
  start(kFast);
  source_->used(2, {5_GiB});
  EXPECT_TRUE(
      becomes(2, [](const Card& card) { return card.memory && card.memory->used == 5_GiB; }));
  source_->used(2, {6_GiB});
  EXPECT_TRUE(becomes(2, [](const Card& card) { return card.memory->used == 6_GiB; }));
}

TEST_F(WithScript, BeforeTheFirstAnswerThereAreNoCards) {
  source_->opening.close();
  start(kFast);
  EXPECT_TRUE(sampler_->snapshot().cards.empty());
  source_->opening.open();
  EXPECT_TRUE(becomes(2, [](const Card& card) { return card.memory.has_value(); }));
}

TEST_F(WithScript, AsksTheDriverNothingWithoutACaller) {
  start(kOnlyWhenAsked);
  for (int i = 0; i < 5; ++i) static_cast<void>(sampler_->fresh(kFarTooLong));
  for (int i = 0; i < 100; ++i) static_cast<void>(sampler_->snapshot());
  EXPECT_GE(source_->memory_calls(0), 5);
  EXPECT_LE(source_->memory_calls(0), 6) << "once by itself at the start";
  EXPECT_LE(source_->process_calls(0), 6);
}

TEST_F(WithScript, ActivityIsAskedOnlyIfWanted) {
  start(kOnlyWhenAsked);
  EXPECT_EQ(sampler_->fresh(kFarTooLong).cards[0].processes->at(0).activity, std::nullopt);
  SamplerOptions with_activity = kOnlyWhenAsked;
  with_activity.activity = true;
  start(with_activity);
  EXPECT_EQ(sampler_->fresh(kFarTooLong).cards[0].processes->at(0).activity, 7);
}

// ---- Process lists ----

TEST_F(WithScript, WithoutProcessesTheListIsReadOnce) {
  SamplerOptions memory_only = kFast;
  memory_only.processes = false;
  start(memory_only);
  EXPECT_TRUE(eventually([&] { return source_->memory_calls(0) > 50; }));
  EXPECT_EQ(source_->process_calls(0), 1);
  static_cast<void>(sampler_->fresh(kFarTooLong));
  EXPECT_EQ(source_->process_calls(0), 2) << "and on request";
}

TEST_F(WithScript, SlowProcessListsAreReadLessOften) {
  SamplerOptions eager = kFast;
  eager.interval = eager.process_interval = Seconds(0.001);
  source_->process_list_costs(0, std::chrono::milliseconds(8));
  start(eager);
  ASSERT_TRUE(eventually([&] { return source_->memory_calls(0) > 300; }));
  // Every wait is twice the one before: 2, 4, 8, ... ms.
  EXPECT_LT(source_->process_calls(0), 30);
  EXPECT_GT(source_->process_calls(1), 2 * source_->process_calls(0))
      << "this card's list is cheap";
}

TEST_F(WithScript, ProcessListsThatBecomeFastAreReadOftenAgain) {
  SamplerOptions eager = kFast;
  eager.interval = eager.process_interval = Seconds(0.001);
  source_->process_list_costs(0, std::chrono::milliseconds(8));
  start(eager);
  ASSERT_TRUE(eventually([&] { return source_->process_calls(0) >= 5; }));
  source_->process_list_costs(0, std::chrono::milliseconds(0));
  const int before = source_->process_calls(0);
  EXPECT_TRUE(eventually([&] { return source_->process_calls(0) > before + 50; }));
}

TEST_F(WithScript, MemoryIsShownBeforeASlowListHasCome) {
  source_->used(0, {5_GiB});
  source_->process_gate(0).close();
  start({.hang_after = kFarTooLong});
  ASSERT_TRUE(source_->process_gate(0).holds_somebody());
  EXPECT_EQ(snapshot_of(0).memory->used, 5_GiB);
  EXPECT_EQ(snapshot_of(0).processes, std::nullopt);
}

// ---- A driver that hangs ----

TEST_F(WithScript, AHangInOneCardLeavesTheOthersFresh) {
  start(kGivesUpSoon);
  static_cast<void>(sampler_->fresh(kFarTooLong));
  source_->memory_gate(1).close();
  ASSERT_TRUE(becomes(1, is_stuck));
  const auto later = Clock::now();
  for (const std::size_t i : {std::size_t{0}, std::size_t{2}})
    EXPECT_TRUE(becomes(i, [&](const Card& card) { return card.sampled > later && !card.stuck; }));
  EXPECT_TRUE(snapshot_of(1).stuck);
}

TEST_F(WithScript, AStuckCardGrowsOlderAndKeepsItsLastFigures) {
  source_->used(1, {5_GiB});
  start(kGivesUpSoon);
  static_cast<void>(sampler_->fresh(kFarTooLong));
  source_->memory_gate(1).close();
  ASSERT_TRUE(becomes(1, is_stuck));
  const Card first = snapshot_of(1);
  const int others = source_->memory_calls(0);
  ASSERT_TRUE(eventually([&] { return source_->memory_calls(0) > others + 5; }));
  const Card later = snapshot_of(1);
  EXPECT_EQ(later.sampled, first.sampled);
  EXPECT_EQ(later.memory->used, 5_GiB);
  EXPECT_GE(age(later, Clock::now()).value(), kGivesUpSoon.hang_after);
}

TEST_F(WithScript, AStuckCardReturnsToLife) {
  start(kGivesUpSoon);
  source_->memory_gate(1).close();
  ASSERT_TRUE(becomes(1, is_stuck));
  source_->used(1, {7_GiB});
  source_->memory_gate(1).open();
  EXPECT_TRUE(becomes(1, [](const Card& card) {
    return !card.stuck && card.memory && card.memory->used == 7_GiB;
  }));
}

TEST_F(WithScript, AHangInTheProcessListIsAHangOfTheCard) {
  start(kGivesUpSoon);
  static_cast<void>(sampler_->fresh(kFarTooLong));
  source_->process_gate(0).close();
  ASSERT_TRUE(becomes(0, is_stuck));
  const auto later = Clock::now();
  EXPECT_TRUE(becomes(1, [&](const Card& card) { return card.sampled > later; }));
  source_->process_gate(0).open();
  EXPECT_TRUE(becomes(0, [&](const Card& card) {
    return !card.stuck && card.sampled > later && card.processes_sampled > later;
  }));
}

TEST_F(WithScript, AllCardsMayHangAndComeBack) {
  start(kGivesUpSoon);
  static_cast<void>(sampler_->fresh(kFarTooLong));
  for (int i = 0; i < 3; ++i) source_->memory_gate(i).close();
  for (std::size_t i = 0; i < 3; ++i) ASSERT_TRUE(becomes(i, is_stuck));
  source_->release_all();
  const auto later = Clock::now();
  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_TRUE(becomes(i, [&](const Card& card) { return !card.stuck && card.sampled > later; }));
}

TEST_F(WithScript, FreshReturnsWhenEachCardIsSampledOrStuck) {
  source_->memory_gate(1).close();
  start(kOnlyWhenAsked);
  const auto asked = Clock::now();
  const Machine machine = sampler_->fresh(2 * kFarTooLong);
  EXPECT_LT(Clock::now() - asked, kFarTooLong) << "not the whole patience";
  EXPECT_TRUE(machine.cards.at(1).stuck);
  EXPECT_FALSE(machine.cards[1].memory);
  EXPECT_GE(machine.cards[2].sampled.value(), asked);
}

TEST_F(WithScript, FreshWaitsNoLongerThanItsPatience) {
  source_->opening.close();
  start({.hang_after = Seconds(0.05)});
  const auto asked = Clock::now();
  const Machine machine = sampler_->fresh(Seconds(0.1));
  EXPECT_GE(Clock::now() - asked, Seconds(0.1));
  EXPECT_LT(Clock::now() - asked, kFarTooLong);
  EXPECT_TRUE(machine.cards.empty());
  EXPECT_TRUE(machine.silent);
  EXPECT_LE(machine.asked, asked);
  EXPECT_TRUE(machine.why_no_driver.starts_with("the NVIDIA driver has not answered for"));
}

// Callers that wait while a driver hangs must get a sample once it answers again: no thread sampled
// the card for them after the hang.
TEST_F(WithScript, AReturningCardIsSampledForWaitingCallers) {
  start(kOnlyWhenAsked);
  static_cast<void>(sampler_->fresh(kFarTooLong));
  source_->memory_gate(0).close();
  ASSERT_TRUE(sampler_->fresh(kFarTooLong).cards.at(0).stuck);

  source_->memory_gate(1).close();
  const auto asked = Clock::now();
  Machine machine;
  std::thread waiting([&] { machine = sampler_->fresh(Seconds(4.0)); });
  const bool went_past_the_stuck_card = source_->memory_gate(1).holds_somebody();
  source_->memory_gate(0).open();
  EXPECT_TRUE(becomes(0, [](const Card& card) { return !card.stuck; }));
  source_->memory_gate(1).open();
  waiting.join();
  ASSERT_TRUE(went_past_the_stuck_card);
  EXPECT_GE(machine.cards.at(0).sampled.value(), asked);
}

TEST_F(WithScript, SnapshotNeverWaitsForTheDriver) {
  for (int i = 0; i < 3; ++i) source_->memory_gate(i).close();
  start(kGivesUpSoon);
  const auto begin = Clock::now();
  for (int i = 0; i < 1000; ++i) static_cast<void>(sampler_->snapshot());
  EXPECT_LT(Clock::now() - begin, kFarTooLong);
}

TEST_F(WithScript, TheDestructorLeavesAHangingCallBehind) {
  source_->memory_gate(0).close();
  start(kGivesUpSoon);
  ASSERT_TRUE(source_->memory_gate(0).holds_somebody());
  const auto begin = Clock::now();
  sampler_.reset();
  EXPECT_LT(Clock::now() - begin, kFarTooLong);
}

TEST_F(WithScript, ManyMayAskAtOnce) {
  start(kFast);
  std::vector<std::thread> askers;
  std::atomic<int> newer{0};
  for (int n = 0; n < 4; ++n)
    askers.emplace_back([&] {
      for (int i = 0; i < 20; ++i) {
        const auto asked = Clock::now();
        const Machine machine = sampler_->fresh(kFarTooLong);
        if (machine.cards.at(2).sampled >= asked) ++newer;
        static_cast<void>(sampler_->snapshot());
      }
    });
  for (std::thread& asker : askers) asker.join();
  EXPECT_EQ(newer, 80);
}

TEST_F(WithScript, ExceptionsOfOpenReachTheCaller) {
  source_->on_open = [] { throw std::runtime_error("another box"); };
  start(kFast);
  EXPECT_THROW(static_cast<void>(sampler_->fresh(kFarTooLong)), std::runtime_error);
  EXPECT_THROW(static_cast<void>(sampler_->snapshot()), std::runtime_error);
}

// ---- The same through the real loading code ----

// Asks a fake driver of two cards.
class WithDriver : public ::testing::Test {
 protected:
  static std::string machine(const std::string& fault) {
    return R"({"cards": [{"used": "1GiB"}, {"used": "2GiB"}], "faults": [)" + fault + "]}";
  }
  // The fault is over, and no thread calls the driver after its file is removed.
  void TearDown() override {
    sampler_.reset();
    driver_.becomes(machine(""));
    EXPECT_TRUE(is_left_alone(std::move(source_)));
  }
  void start() { sampler_.emplace(source_, kGivesUpSoon); }
  bool becomes(std::size_t i, const std::function<bool(const Card&)>& such) {
    return eventually([&] {
      const Machine now = sampler_->snapshot();
      return i < now.cards.size() && such(now.cards[i]);
    });
  }

  FakeDriver driver_{machine("")};
  std::shared_ptr<CardSource> source_ = make_nvml_source();
  std::optional<Sampler> sampler_;
};

TEST_F(WithDriver, AHangInNvmlCostsOneCardUntilItEnds) {
  for (const char* function : {"nvmlDeviceGetMemoryInfo*", "nvmlDeviceGetComputeRunningProcesses*",
                               "nvmlDeviceGetPowerUsage"}) {
    start();
    static_cast<void>(sampler_->fresh(kFarTooLong));
    driver_.becomes(
        machine(R"({"card": 0, "do": "hang", "function": ")" + std::string(function) + R"("})"));
    ASSERT_TRUE(becomes(0, is_stuck)) << function;
    const auto later = Clock::now();
    EXPECT_TRUE(becomes(1, [&](const Card& card) { return card.sampled > later && !card.stuck; }));
    driver_.becomes(machine(""));
    EXPECT_TRUE(becomes(0, [&](const Card& card) { return card.sampled > later && !card.stuck; }));
    sampler_.reset();
    EXPECT_TRUE(is_left_alone(std::exchange(source_, make_nvml_source())));
  }
}

TEST_F(WithDriver, AHangWhileItOpensIsSaidAndEnds) {
  driver_.becomes(machine(R"({"function": "nvmlInit*", "do": "hang"})"));
  start();
  EXPECT_TRUE(eventually([&] { return sampler_->snapshot().silent; }));
  EXPECT_TRUE(sampler_->fresh(Seconds(0.05)).cards.empty());
  driver_.becomes(machine(""));
  EXPECT_TRUE(becomes(1, [](const Card& card) { return card.memory && !card.stuck; }));
  EXPECT_FALSE(sampler_->snapshot().silent);
  EXPECT_EQ(sampler_->snapshot().why_no_driver, "");
}

TEST(Sampler, AMachineWithoutADriverAnswersAtOnce) {
  const SetEnvironment nowhere("HEADROOM_NVML", "/nowhere/libnvidia-ml.so.1");
  std::shared_ptr<CardSource> source = make_nvml_source();
  {
    Sampler sampler(source);
    const auto asked = Clock::now();
    const Machine machine = sampler.fresh(2 * kFarTooLong);
    EXPECT_LT(Clock::now() - asked, kFarTooLong);
    EXPECT_TRUE(machine.why_no_driver.starts_with("no NVIDIA driver here"));
    EXPECT_FALSE(machine.silent);
  }
  EXPECT_TRUE(is_left_alone(std::move(source)));
}

}  // namespace
}  // namespace headroom::gpu
