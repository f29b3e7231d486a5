// The loop of a supervised run, over scripted places and tries: which try follows which end, and
// how the run ends.

#include "headroom/supervise/supervision.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>

#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/supervise/run_history.h"
#include "tests/support/temporary_folder.h"
#include "tests/watch/machines.h"

namespace headroom::supervise {
namespace {

using namespace headroom::literals;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

Try ended(int exit_code) {
  Try one;
  one.end.exit_code = exit_code;
  one.judgement.verdict = oom::Verdict::not_oom;
  return one;
}

Try ran_out(oom::Verdict verdict = oom::Verdict::gpu_oom) {
  Try one;
  one.end.exit_code = 1;
  one.end.last_output = "CUDA out of memory";
  one.judgement = {.verdict = verdict,
                   .kind = "cuda",
                   .confidence = 1,
                   .evidence = "CUDA out of memory",
                   .asked = 4_GiB};
  one.peak = 20_GiB;
  one.limit = 20_GiB;
  return one;
}

// An answer of the script: a place with so much usable memory, or none.
struct Answer {
  std::optional<Bytes> usable;
  Outcome outcome = Outcome::busy;
  std::string sentence{};
  int exit_code = 0;
};

Answer room(Bytes usable) {
  return {.usable = usable};
}
Answer none(Outcome outcome, std::string sentence, int exit_code = 0) {
  return {
      .usable = {}, .outcome = outcome, .sentence = std::move(sentence), .exit_code = exit_code};
}

// Gives the scripted answers in their order and keeps the wishes.
class ScriptedPlaces : public Places {
 public:
  PlaceAnswer find(const PlaceWish& wish) override {
    wishes.push_back(wish);
    const Answer next = answers.at(wishes.size() - 1);
    PlaceAnswer answer{.outcome = next.outcome,
                       .exit_code = next.exit_code,
                       .sentence = next.sentence,
                       .waited = Seconds(2)};
    if (!next.usable) return answer;
    answer.place.emplace();
    answer.place->cards = {{headroom::testing::busy_card(Clock::now()), *next.usable}};
    return answer;
  }
  std::optional<int> wait_until_memory_is_back(const Place& /*place*/) override {
    return signal_in_wait;
  }
  gpu::Machine fresh() override { return headroom::testing::two_cards(Clock::now()); }
  [[nodiscard]] bool is_inside_lease() const override { return inside_lease; }

  std::vector<Answer> answers;
  std::vector<PlaceWish> wishes;
  std::optional<int> signal_in_wait;
  bool inside_lease = false;
};

class SupervisionTest : public ::testing::Test {
 protected:
  SupervisionTest() {
    ::setenv("HEADROOM_STATE_DIR", folder_.path().c_str(), 1);
    orders_.command = {"train", "--batch-size", "64", "--accum", "1"};
    orders_.devices = gpu::parse_devices("all");
    orders_.need = 10_GiB;
  }
  ~SupervisionTest() override { ::unsetenv("HEADROOM_STATE_DIR"); }

  void map_both() { orders_.maps = {"--batch-size=batch", "--accum=accumulation"}; }

  Report run(const std::vector<Answer>& places, const std::vector<Try>& tries) {
    for (const Answer& one : places) places_.answers.push_back(one);
    const edit::Knobs knobs(orders_.maps, orders_.command);
    const auto run_try = [&, next = std::size_t{0}](job::Launch launch, const Place&) mutable {
      launches_.push_back(launch.command);
      Try one = tries.at(next++);
      one.command = launch.command;
      if (while_it_runs_) while_it_runs_();
      return one;
    };
    const Listener listener{.say = [&](const std::string& text) { said_.push_back(text); }};
    Report report = run_supervision(orders_, listener, knobs, places_, run_try);
    EXPECT_EQ(report.tries.size(), tries.size()) << "all of the script was used";
    EXPECT_EQ(places_.wishes.size(), places_.answers.size());
    return report;
  }
  [[nodiscard]] std::vector<std::string> batches() const {
    std::vector<std::string> all;
    for (const auto& command : launches_) all.push_back(command[2] + " x " + command[4]);
    return all;
  }

  headroom::testing::TemporaryFolder folder_;
  Orders orders_;
  ScriptedPlaces places_;
  std::function<void()> while_it_runs_;
  std::vector<std::string> said_;
  std::vector<std::vector<std::string>> launches_;
};

// ---- One try ----

TEST_F(SupervisionTest, ASuccessEndsTheRunAfterOneTry) {
  const Report report = run({room(20_GiB)}, {ended(0)});
  EXPECT_EQ(report.outcome, Outcome::ended);
  EXPECT_EQ(report.exit_code, 0);
  EXPECT_EQ(report.sentence, "");
  EXPECT_EQ(report.waited, Seconds(2));
  EXPECT_FALSE(report.forensics);
}

TEST_F(SupervisionTest, ACrashIsNotTriedAgain) {
  map_both();
  const Report report = run({room(20_GiB)}, {ended(139)});
  EXPECT_EQ(report.outcome, Outcome::ended);
  EXPECT_EQ(report.exit_code, 139);
}

TEST_F(SupervisionTest, AnOutOfMemoryOfLowConfidenceIsNotTriedAgain) {
  map_both();
  Try guess = ran_out();
  guess.judgement.confidence = 0.6;
  EXPECT_EQ(run({room(20_GiB)}, {guess}).outcome, Outcome::ended);
}

TEST_F(SupervisionTest, AJobThatASignalAskedToEndIsNotTriedAgain) {
  map_both();
  Try stopped = ran_out();
  stopped.end.received = SIGTERM;
  stopped.end.exit_code = 143;
  const Report report = run({room(20_GiB)}, {stopped});
  EXPECT_EQ(report.outcome, Outcome::ended);
  EXPECT_EQ(report.exit_code, 143);
}

TEST_F(SupervisionTest, ACommandThatCannotStartIsNamed) {
  Try missing = ended(127);
  missing.end.started = false;
  missing.end.not_started = "No such file or directory";
  const Report report = run({room(20_GiB)}, {missing});
  EXPECT_EQ(report.sentence, "train: No such file or directory");
  EXPECT_EQ(report.exit_code, 127);
}

TEST_F(SupervisionTest, AStalledJobThatEndsWellStillReportsTheSignal) {
  Try stalled = ended(0);
  stalled.ended_stalled = true;
  const Report report = run({room(20_GiB)}, {stalled});
  EXPECT_EQ(report.exit_code, 128 + SIGTERM);
  EXPECT_EQ(report.sentence, "ended because it was stalled");
}

TEST_F(SupervisionTest, EachTryIsALineOfTheHistory) {
  map_both();
  orders_.history = folder_.path() / "h.ndjson";
  const Report report = run({room(20_GiB)}, {ran_out(), ended(0)});
  EXPECT_EQ(read_file(orders_.history),
            to_line(report.tries[0]) + "\n" + to_line(report.tries[1]) + "\n");
  EXPECT_EQ(report.tries[1].number, 2);
}

// ---- A smaller batch ----

TEST_F(SupervisionTest, AnOutOfMemoryIsTriedAgainWithTheSameEffectiveBatch) {
  map_both();
  const Report report = run({room(20_GiB)}, {ran_out(), ended(0)});
  EXPECT_THAT(batches(), ElementsAre("64 x 1", "32 x 2"));
  EXPECT_EQ(report.outcome, Outcome::ended);
  EXPECT_EQ(report.tries[1].batch, 32);
  ASSERT_TRUE(report.forensics) << "of the last out-of-memory";
  EXPECT_EQ(report.forensics->changes.size(), 2u);
  EXPECT_EQ(report.forensics->why_no_change, "");
  EXPECT_THAT(said_, Contains(HasSubstr("trying again with --batch-size 32, --accum 2")));
}

TEST_F(SupervisionTest, ABugAfterAnOutOfMemoryEndsTheRun) {
  map_both();
  const Report report = run({room(20_GiB)}, {ran_out(), ended(1)});
  EXPECT_EQ(report.outcome, Outcome::ended);
  EXPECT_EQ(report.exit_code, 1);
}

TEST_F(SupervisionTest, WithoutMapsAnOutOfMemoryInsideALeaseIsTheEnd) {
  places_.inside_lease = true;
  const Report report = run({room(20_GiB)}, {ran_out()});
  EXPECT_EQ(report.outcome, Outcome::out_of_memory);
  EXPECT_THAT(report.sentence, HasSubstr("nothing is mapped that may be changed"));
  EXPECT_EQ(report.forensics->why_no_change, report.sentence);
}

TEST_F(SupervisionTest, ABatchWithoutAnAccumulationStaysUnlessItMayChange) {
  orders_.maps = {"--batch-size=batch"};
  places_.inside_lease = true;
  EXPECT_THAT(run({room(20_GiB)}, {ran_out()}).sentence,
              HasSubstr("the effective batch would change"));
  EXPECT_THAT(said_, Contains(HasSubstr("--batch-size will not be changed")));
  launches_.clear();
  orders_.keep_effective_batch = false;
  EXPECT_EQ(run({room(20_GiB)}, {ran_out(), ended(0)}).outcome, Outcome::ended);
  EXPECT_THAT(batches(), ElementsAre("64 x 1", "32 x 1"));
}

TEST_F(SupervisionTest, StopsAfterMaxRetries) {
  map_both();
  orders_.max_retries = 1;
  const Report report = run({room(20_GiB)}, {ran_out(), ran_out()});
  EXPECT_EQ(report.outcome, Outcome::out_of_memory);
  EXPECT_EQ(report.sentence, "out of memory after 2 tries, the most that --max-retries allows");
}

// ---- Places ----

TEST_F(SupervisionTest, WithoutAPlaceNoTryIsRun) {
  const Report report = run({none(Outcome::busy, "short by 2 GiB")}, {});
  EXPECT_EQ(report.outcome, Outcome::busy);
  EXPECT_EQ(report.sentence, "short by 2 GiB");
  EXPECT_EQ(run({none(Outcome::no_cards, "no cards")}, {}).outcome, Outcome::no_cards);
}

TEST_F(SupervisionTest, ASignalDuringTheWaitCancelsTheRun) {
  const Report report = run({none(Outcome::cancelled, "", 130)}, {});
  EXPECT_EQ(report.outcome, Outcome::cancelled);
  EXPECT_EQ(report.exit_code, 130);
}

TEST_F(SupervisionTest, ASignalBetweenTwoTriesCancelsTheRun) {
  map_both();
  places_.signal_in_wait = 143;
  const Report report = run({room(20_GiB)}, {ran_out()});
  EXPECT_EQ(report.outcome, Outcome::cancelled);
  EXPECT_EQ(report.exit_code, 143);
}

TEST_F(SupervisionTest, AJobOfUnknownNeedWantsHalfOfTheSmallestCardAndAllThatIsUsable) {
  orders_.need.reset();
  (void)run({room(20_GiB)}, {ended(0)});
  Bytes smallest{1LL << 60};
  for (const gpu::Card& card : places_.fresh().cards)
    smallest = std::min(smallest, card.memory->total);
  EXPECT_EQ(places_.wishes[0].need, smallest / 2);
  EXPECT_FALSE(places_.wishes[0].is_known);
}

TEST_F(SupervisionTest, WithoutASmallerBatchItLooksForACardWithMoreRoom) {
  orders_.wait_for_more = Seconds(7);
  const Report report = run({room(20_GiB), room(40_GiB)}, {ran_out(), ended(0)});
  EXPECT_EQ(report.outcome, Outcome::ended);
  EXPECT_EQ(report.sentence, "");
  EXPECT_EQ(places_.wishes[1].need, 24_GiB) << "the peak and the failed request";
  EXPECT_EQ(places_.wishes[1].timeout, Seconds(7));
  EXPECT_THAT(said_, Contains(HasSubstr("trying again with more memory")));
}

TEST_F(SupervisionTest, WithoutFiguresMoreRoomIsMoreThanTheLastPlaceHad) {
  Try silent = ran_out();
  silent.judgement.asked.reset();
  (void)run({room(20_GiB), room(40_GiB)}, {silent, ended(0)});
  EXPECT_EQ(places_.wishes[1].need, 20_GiB + 1_MiB);
}

TEST_F(SupervisionTest, WithoutMoreRoomItGivesUpWithBothReasons) {
  const Report report = run({room(20_GiB), none(Outcome::busy, "all are full")}, {ran_out()});
  EXPECT_EQ(report.outcome, Outcome::out_of_memory);
  EXPECT_THAT(report.sentence, HasSubstr("nothing is mapped"));
  EXPECT_THAT(report.sentence, HasSubstr("; more memory is not usable either: all are full"));
  EXPECT_EQ(report.forensics->why_no_change, report.sentence);
}

TEST_F(SupervisionTest, ASignalDuringTheWaitForMoreRoomLeavesTheReasonForIt) {
  const Report report = run({room(20_GiB), none(Outcome::cancelled, "", 130)}, {ran_out()});
  EXPECT_EQ(report.outcome, Outcome::cancelled);
  EXPECT_THAT(report.sentence, HasSubstr("nothing is mapped"));
  EXPECT_EQ(report.forensics->why_no_change, "");
}

TEST_F(SupervisionTest, AnotherCardDoesNotHelpWhenTheHostRanOut) {
  const Report report = run({room(20_GiB)}, {ran_out(oom::Verdict::host_oom)});
  EXPECT_EQ(report.outcome, Outcome::out_of_memory);
  EXPECT_THAT(places_.wishes, SizeIs(1));
}

// ---- Files and memory of earlier runs ----

TEST_F(SupervisionTest, AFileIsChangedForATryAndPutBackAtTheEnd) {
  const auto file = folder_.write("c.yaml", "batch: 64\n").string();
  orders_.maps = {file + ":batch=batch"};
  orders_.keep_effective_batch = false;
  std::vector<std::string> seen;
  while_it_runs_ = [&] { seen.push_back(read_file(file).value_or("")); };
  (void)run({room(20_GiB)}, {ran_out(), ended(0)});
  EXPECT_THAT(seen, ElementsAre("batch: 64\n", "batch: 32\n"));
  EXPECT_EQ(read_file(file), "batch: 64\n");
}

TEST_F(SupervisionTest, AFileThatTheUserChangedAfterATryEndsTheRunAndKeepsTheReport) {
  const auto file = folder_.write("c.yaml", "batch: 64\n").string();
  orders_.maps = {file + ":batch=batch"};
  orders_.keep_effective_batch = false;
  int tries = 0;
  while_it_runs_ = [&] {
    if (++tries == 2) folder_.write("c.yaml", "batch: 7\n");
  };
  const Report report = run({room(20_GiB)}, {ran_out(), ran_out()});
  EXPECT_EQ(report.outcome, Outcome::out_of_memory);
  EXPECT_THAT(report.sentence, HasSubstr("cannot be tried again with less"));
  EXPECT_EQ(report.forensics->why_no_change, "") << "a change was found";
  EXPECT_EQ(read_file(file), "batch: 7\n") << "and is not overwritten";
}

TEST_F(SupervisionTest, ANewRunBeginsWithTheBatchThatWorkedBefore) {
  map_both();
  (void)run({room(20_GiB)}, {ran_out(), ended(0)});
  launches_.clear();
  (void)run({room(20_GiB)}, {ended(0)});
  EXPECT_THAT(batches(), ElementsAre("32 x 2"));
  EXPECT_THAT(said_, Contains(HasSubstr("beginning with --batch-size 32, --accum 2")));
}

TEST_F(SupervisionTest, ABatchThatWorkedBeforeAndFailsNowIsForgotten) {
  map_both();
  (void)run({room(20_GiB)}, {ran_out(), ended(0)});
  orders_.max_retries = 0;
  (void)run({room(20_GiB)}, {ran_out()});
  launches_.clear();
  (void)run({room(20_GiB)}, {ended(0)});
  EXPECT_THAT(batches(), ElementsAre("64 x 1"));
}

TEST_F(SupervisionTest, ANewRunReservesWhatTheJobUsedBefore) {
  orders_.need.reset();
  Try good = ended(0);
  good.card_peak = 10_GiB;
  (void)run({room(20_GiB)}, {good});
  (void)run({room(20_GiB)}, {good});
  EXPECT_TRUE(places_.wishes[1].is_known);
  EXPECT_EQ(places_.wishes[1].need, 11_GiB) << "a tenth more";
}

TEST_F(SupervisionTest, AnAccumulationWithoutABatchIsRefused) {
  orders_.maps = {"--accum=accumulation"};
  EXPECT_THROW((void)run({}, {}), UsageError);
}

}  // namespace
}  // namespace headroom::supervise
