#include "headroom/sim/injection.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "headroom/base/error.h"
#include "headroom/sim/simulate.h"

namespace headroom::sim {
namespace {

using namespace headroom::literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using trace::Phase;

class Injection : public ::testing::Test {
 protected:
  // Which of so many requests of these sizes are refused, from 1.
  std::vector<int> refused(int requests, Bytes bytes = 1_MiB, int card = 0) {
    std::vector<int> numbers;
    for (int i = 1; i <= requests; ++i) {
      try {
        box_.card(card).free(box_.card(card).allocate(bytes, 0));
        box_.card(card).empty_cache();  // so that each is asked of the driver
      } catch (const c10::OutOfMemoryError&) {
        numbers.push_back(i);
      }
    }
    return numbers;
  }

  Simulation box_ = simulate("2x1GiB");
};

TEST_F(Injection, OnceRefusesOneRequestAndNotItsRepetition) {
  const InjectionScope scope(box_.card(0), once(3));
  EXPECT_THAT(refused(9), ElementsAre(3));
}

TEST_F(Injection, CountsFromItsInstallation) {
  (void)refused(5);
  const InjectionScope scope(box_.card(0), once(2));
  EXPECT_THAT(refused(4), ElementsAre(2));
}

TEST_F(Injection, LastingRefusesRequestsAsLargeUntilItIsLifted) {
  const Lift lift;
  const InjectionScope scope(box_.card(0), lasting(2, lift));
  EXPECT_THAT(refused(3, 4_MiB), ElementsAre(2, 3));
  EXPECT_THAT(refused(2, 3_MiB), ElementsAre()) << "a smaller plan goes through";
  EXPECT_THAT(refused(2, 5_MiB), ElementsAre(1, 2));
  lift.now();
  EXPECT_THAT(refused(2, 5_MiB), ElementsAre());
}

TEST_F(Injection, EveryNthIsRefused) {
  {
    const InjectionScope scope(box_.card(0), every(3));
    EXPECT_THAT(refused(10), ElementsAre(3, 6, 9));
  }
  const InjectionScope scope(box_.card(0), every(4, 2));
  EXPECT_THAT(refused(10), ElementsAre(2, 6, 10));
  EXPECT_THROW((void)every(0), UsageError);
  EXPECT_THROW((void)once(0), UsageError);
  EXPECT_THROW((void)lasting(0), UsageError);
  EXPECT_THROW((void)randomly(1.5, 1), UsageError);
  EXPECT_THROW((void)randomly(-0.1, 1), UsageError);
}

TEST_F(Injection, ByChanceIsTheSameForTheSameSeed) {
  std::vector<std::vector<int>> runs;
  for (const std::uint64_t seed : {1, 1, 2}) {
    { const Simulation gone = std::move(box_); }
    box_ = simulate("2x1GiB");  // whose requests are counted from 1 again
    const InjectionScope scope(box_, randomly(0.2, seed));
    runs.push_back(refused(500));
  }
  EXPECT_EQ(runs[0], runs[1]);
  EXPECT_NE(runs[0], runs[2]);
  EXPECT_GT(runs[0].size(), 60u);
  EXPECT_LT(runs[0].size(), 140u);
  const InjectionScope never(box_, randomly(0, 1));
  EXPECT_THAT(refused(100), ElementsAre());
  const InjectionScope always(box_, randomly(1, 1));
  EXPECT_EQ(refused(10).size(), 10u);
}

TEST_F(Injection, HoldsForOneCardOrForAll) {
  {
    const InjectionScope scope(box_, on_card(1, every(1)));
    EXPECT_THAT(refused(2, 1_MiB, 0), ElementsAre());
    EXPECT_THAT(refused(2, 1_MiB, 1), ElementsAre(1, 2));
  }
  const InjectionScope scope(box_, once(3));
  EXPECT_THAT(refused(2, 1_MiB, 0), ElementsAre());
  EXPECT_THAT(refused(2, 1_MiB, 1), ElementsAre(1)) << "all cards' requests are counted together";
}

TEST_F(Injection, HoldsInOnePhaseOrStepOfTheRecorder) {
  trace::Recorder recorder;
  box_.card(0).record(&recorder);
  {
    const InjectionScope scope(box_.card(0), in_phase(Phase::backward, once(2)));
    EXPECT_THAT(refused(5), ElementsAre());
    const trace::PhaseScope backward(recorder, Phase::backward);
    EXPECT_THAT(refused(5), ElementsAre(2)) << "counted within the phase";
  }
  const InjectionScope scope(box_.card(0), at_step(3, every(2)));
  EXPECT_THAT(refused(4), ElementsAre());
  recorder.set_step(3);
  EXPECT_THAT(refused(4), ElementsAre(2, 4));
  box_.card(0).record(nullptr);
}

TEST_F(Injection, SeveralActAsOneInjector) {
  const InjectionScope scope(box_.card(0), any_of({once(2), every(5), neighbour(0.5)}));
  EXPECT_THAT(refused(10), ElementsAre(2, 5, 10));
  EXPECT_EQ(box_.card(0).free_bytes(), 512_MiB);
}

TEST_F(Injection, ANeighbourTakesMemoryAndGivesItBack) {
  Card& card = box_.card(0);
  {
    const InjectionScope scope(card, neighbour({{3, 0.75}, {5, 0.25}, {7, 0}}));
    EXPECT_THAT(refused(8, 500_MiB), ElementsAre(3, 4));
  }
  {
    const InjectionScope scope(card, neighbour(0.75));
    EXPECT_THAT(refused(1, 500_MiB), ElementsAre(1));
    EXPECT_EQ(card.free_bytes(), 256_MiB);
  }
  EXPECT_EQ(card.free_bytes(), 1_GiB) << "it is gone with the scope";
  EXPECT_THROW((void)neighbour(1.5), UsageError);
}

TEST_F(Injection, LooksLikeAFullCard) {
  trace::Recorder recorder;
  Card& card = box_.card(0);
  card.record(&recorder);
  const InjectionScope scope(card, once(1));
  try {
    (void)torch::empty({256, 1024}, box_.device(0));
    FAIL() << "not refused";
  } catch (const c10::OutOfMemoryError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("CUDA out of memory. Tried to allocate 1024.00 KiB. GPU 0"));
  }
  EXPECT_EQ(card.statistics().num_ooms, 1);
  EXPECT_EQ(recorder.event(recorder.recorded() - 1).kind, trace::Kind::oom);
  card.reset_accumulated();
  EXPECT_EQ(card.statistics().num_ooms, 0);
  card.record(nullptr);
}

TEST_F(Injection, ScopesNest) {
  const InjectionScope outer(box_.card(0), every(2));
  {
    const InjectionScope inner(box_.card(0), every(1));
    EXPECT_THAT(refused(2), ElementsAre(1, 2));
  }
  EXPECT_THAT(refused(4), ElementsAre(2, 4));
}

// ---- In words ----

TEST_F(Injection, IsReadFromTheCommandLinesWords) {
  const auto refused_by = [&](const char* text) {
    const InjectionScope scope(box_.card(0), parse_injection(text));
    return refused(6);
  };
  EXPECT_THAT(refused_by("oom@2"), ElementsAre(2));
  EXPECT_THAT(refused_by("oom@5:lasting"), ElementsAre(5, 6));
  EXPECT_THAT(refused_by(" oom@2:every=2 "), ElementsAre(2, 4, 6));
  EXPECT_THAT(refused_by("oom@step=1"), ElementsAre()) << "no recorder: it is step 0";
  EXPECT_THAT(refused_by("oom@step=0"), ElementsAre(1));
}

TEST_F(Injection, IsReadWithStepPhaseAndNeighbour) {
  trace::Recorder recorder;
  box_.card(0).record(&recorder);
  recorder.set_step(4);
  {
    const InjectionScope scope(box_, parse_injection("oom@step=4:phase=optimizer"));
    EXPECT_THAT(refused(3), ElementsAre());
    const trace::PhaseScope optimizer(recorder, Phase::optimizer);
    EXPECT_THAT(refused(3), ElementsAre(1));
  }
  const InjectionScope scope(box_, parse_injection("neighbour@step=5:75%"));
  EXPECT_THAT(refused(1, 500_MiB), ElementsAre());
  recorder.set_step(5);
  EXPECT_THAT(refused(2, 500_MiB), ElementsAre(1, 2));
  recorder.set_step(6);
  EXPECT_THAT(refused(1, 500_MiB), ElementsAre(1)) << "it stays";
  box_.card(0).record(nullptr);
}

TEST_F(Injection, UnknownWordsAreRefused) {
  for (const char* text :
       {"", "oom", "oom@", "oom@0", "oom@-1", "oom@x", "oom@3:", "oom@3:often", "oom@3:every=0",
        "oom@step=", "oom@step=-1", "oom@step=99999999999", "oom@step=1:phase=sleep",
        "oom@step=1:lasting", "neighbour@3:30%", "neighbour@step=3", "neighbour@step=3:30",
        "neighbour@step=3:130%", "neighbour@step=3:x%"})
    EXPECT_THROW((void)parse_injection(text), UsageError) << text;
}

// ---- Fragments ----

TEST_F(Injection, FragmentsLeaveFreeMemoryThatCannotBeUsed) {
  Card& card = box_.card(0);
  {
    const Fragments fragments(card, 1020_MiB, 4_MiB);
    const allocator::Statistics now = card.statistics();
    EXPECT_EQ(now.reserved_bytes.all.current, (1020_MiB).count);
    EXPECT_EQ(now.allocated_bytes.all.current, (512_MiB).count) << "128 of 255 pieces are kept";
    EXPECT_THAT(refused(1, 5_MiB), ElementsAre(1)) << "half is free, in holes of 4 MiB";
    EXPECT_THAT(refused(1, 4_MiB), ElementsAre());
  }
  EXPECT_THAT(refused(1, 900_MiB), ElementsAre());
  EXPECT_THROW(Fragments(card, 2_GiB, 4_MiB), c10::OutOfMemoryError);
  EXPECT_EQ(card.statistics().allocated_bytes.all.current, 0);
}

}  // namespace
}  // namespace headroom::sim
