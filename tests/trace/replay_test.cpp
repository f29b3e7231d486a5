// Traces played to a card. The figures are worked out from the rules of PyTorch's allocator, which
// each test names: sizes are rounded up to 512 bytes; up to 1 MiB is small and shares segments of
// 2 MiB; below 10 MiB shares segments of 20 MiB; above, a segment of its own, rounded up to 2 MiB;
// a large block is split when more than 1 MiB is left.
#include "headroom/trace/replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/base/error.h"
#include "headroom/trace/plain_reader.h"
#include "tests/trace/written_events.h"

namespace headroom::trace {
namespace {

using namespace headroom::literals;
using namespace headroom::trace::testing;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Replay replay_of(std::string_view text, const CardSetup& setup = {}) {
  const auto trace = read_plain(Input::memory("x.txt", text));
  return replay(*trace, {.setup = setup, .operations = {.name = "x.txt"}});
}

// 3,000,000 is 5859.4 times 512: 5860 x 512 = 3,000,320, in a segment of 20 MiB = 20,971,520, of
// which 17,971,200 are left over.
TEST(Replay, CountsAsPyTorchDoes) {
  const CardReplay card = replay_of("a 7 3000000\nf 7\n").card;
  const allocator::Statistics& s = card.statistics;
  EXPECT_EQ(s.requested_bytes.all.peak, 3'000'000);
  EXPECT_EQ(s.allocated_bytes.all.peak, 3'000'320);
  EXPECT_EQ(s.active_bytes.all.peak, 3'000'320);
  EXPECT_EQ(s.reserved_bytes.all.peak, 20'971'520);
  EXPECT_EQ(s.inactive_split_bytes.all.peak, 17'971'200);
  EXPECT_EQ(s.allocated_bytes.all.current, 0);
  EXPECT_EQ(s.reserved_bytes.all.current, 20'971'520) << "kept for the next request";
  EXPECT_EQ(card.operations, 2U);
}

// 30 + 30 MiB in segments of their own: never is more allocated than after event 1. Then both are
// free, and 50 MiB fit into neither: event 4 reserves most.
TEST(Replay, KnowsTheEventsOfThePeaks) {
  const CardReplay card = replay_of(
                              "a 1 31457280\na 2 31457280\nf 1\nf 2\n"
                              "a 3 52428800\n")
                              .card;
  EXPECT_EQ(card.allocated_peak.event, 1U);
  EXPECT_EQ(card.allocated_peak.peak, 60_MiB);
  EXPECT_EQ(card.reserved_peak.event, 4U);
  EXPECT_EQ(card.reserved_peak.peak, 110_MiB);
  EXPECT_EQ(card.reserved_peak.allocated, 50_MiB);
  EXPECT_EQ(card.unused_at_peak(), 60_MiB);
}

// 2.12 came with the option.
TEST(Replay, FollowsThePyTorchOfTheSetupOrOfTheTrace) {
  CardSetup setup{.settings = "throw_on_cudamalloc_oom:True", .capacity = 1_GiB};
  setup.version = allocator::version_named("2.11");
  EXPECT_THROW(static_cast<void>(replay_of("a 1 1\n", setup)), UsageError);
  setup.version.reset();
  EXPECT_EQ(version_of(setup, {.torch = "2.14"}).minor, 14);
  EXPECT_EQ(version_of(setup, {.torch = "2.9"}).torch, allocator::default_version().torch);
  setup.version = allocator::version_named("2.15");
  EXPECT_EQ(version_of(setup, {.torch = "2.14"}).minor, 15);
  const CardReplay card = replay_of("a 1 700000000\na 2 700000000\n", setup).card;
  EXPECT_EQ(card.version.minor, 15);
  EXPECT_EQ(card.statistics.num_oom_rejections, 1);
}

TEST(Replay, WithAFractionOf0RefusesEveryRequest) {
  EXPECT_THAT(replay_of("a 1 1\n", {.fraction = 0.0}).card.refused, ElementsAre(0));
}

TEST(Replay, NamesTheMistakeOfAnAllocation) {
  const auto mistake = [](std::string_view text) {
    try {
      static_cast<void>(replay_of(text));
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  EXPECT_THAT(mistake("a 1 1\na 1 1\n"),
              HasSubstr("event 1: expected an id that is not allocated"));
  EXPECT_THAT(mistake("B 7\nR 7\ne\na 3 4\n"), HasSubstr("event 3: expected an open pool"));
}

TEST(Replay, RestartsThePeaksWhenTheyAreReset) {
  const CardReplay card = replay_of("a 1 31457280\nf 1\nP\na 2 10485760\n").card;
  EXPECT_EQ(card.allocated_peak.peak, 10_MiB);
  EXPECT_EQ(card.allocated_peak.event, 3U);
  EXPECT_EQ(card.reserved_peak.event, 0U) << "the segment of 30 MiB was never given back";
}

// 30 + 30 MiB do not fit into 50; nothing can be given back.
TEST(Replay, SkipsARefusedRequestAndGoesOn) {
  const CardReplay card =
      replay_of("# one\na 1 31457280\na 2 31457280\nf 2\nf 1\na 2 31457280\nf 2\n",
                {.capacity = 50_MiB})
          .card;
  EXPECT_THAT(card.refused, ElementsAre(1));
  EXPECT_EQ(card.statistics.num_ooms, 1);
  EXPECT_EQ(card.statistics.reserved_bytes.all.peak, (30_MiB).count);
  ASSERT_TRUE(card.first_refusal.has_value());
  EXPECT_EQ(card.first_refusal->requested, 30_MiB);
  EXPECT_EQ(card.first_refusal->free, 20_MiB);
}

// An id that was refused is free to be asked for again, without a free between.
TEST(Replay, AllocatesTheIdOfARefusedRequestAgain) {
  const CardReplay card = replay_of("a 1 62914560\na 1 31457280\nf 1\n", {.capacity = 50_MiB}).card;
  EXPECT_THAT(card.refused, ElementsAre(0));
  EXPECT_EQ(card.statistics.allocated_bytes.all.peak, (30_MiB).count);
}

// Half of 100 MiB may be reserved: 30 MiB and not 60.
TEST(Replay, ObeysTheFraction) {
  const char* const text = "a 1 31457280\na 2 31457280\n";
  EXPECT_THAT(replay_of(text, {.capacity = 100_MiB}).card.refused, IsEmpty());
  EXPECT_THAT(replay_of(text, {.capacity = 100_MiB, .fraction = 0.5}).card.refused, ElementsAre(1));
}

// With the other stream's work pending, the block of 30 MiB cannot be used again.
TEST(Replay, HoldsEventsIfWanted) {
  const char* const text = "a 1 31457280\nr 1 5\nf 1\na 2 31457280\ny 5\na 3 31457280\n";
  EXPECT_EQ(replay_of(text).card.statistics.reserved_bytes.all.peak, (60_MiB).count);
  const CardReplay held = replay_of(text, {.hold_events = true}).card;
  EXPECT_EQ(held.statistics.reserved_bytes.all.peak, (60_MiB).count);
  EXPECT_EQ(held.reserved_peak.event, 3U);
  EXPECT_EQ(replay_of(text).card.reserved_peak.event, 5U);
}

// roundup_power2_divisions:4 rounds 40 MiB + 1 up to 48; 32 + 16 are the parts of its power.
TEST(Replay, TakesSettingsFromTheCallerThenFromTheFile) {
  const auto trace = trace_of({alloc(1, 40_MiB + 1_B)},
                              {.format = Format::pickle, .settings = "roundup_power2_divisions:4"});
  EXPECT_EQ(replay(*trace).card.statistics.allocated_bytes.all.peak, (48_MiB).count);
  const auto again = trace_of({alloc(1, 40_MiB + 1_B)},
                              {.format = Format::pickle, .settings = "roundup_power2_divisions:4"});
  const Replay other = replay(*again, {.setup = {.settings = ""}});
  EXPECT_EQ(other.card.statistics.allocated_bytes.all.peak, (40_MiB + 512_B).count)
      << "a rest of less than 2 MiB, but more than 1, is split off";
  EXPECT_EQ(other.card.settings, "");
}

TEST(Replay, ChangesSettingsWhereTheTraceDoes) {
  const CardReplay card =
      replay_of("a 1 41943041\nc roundup_power2_divisions:4\na 2 41943041\n").card;
  EXPECT_EQ(card.statistics.allocated_bytes.all.current, (40_MiB + 512_B + 48_MiB).count);
}

// Segments of 128 TiB, each above the one before, reach the addresses of expandable segments at
// 2^50. There two free blocks of equal size and address once ended the program.
TEST(Replay, SurvivesATraceThatUsesUpAllAddresses) {
  std::string text;
  for (int i = 0; i < 7; ++i) text += "a 1 140737488355328\nf 1\ne\n";
  text +=
      "a 1 140737488355328\nf 1\na 2 1099511627776\n"              // up to 2^50
      "a 3 20971520\na 4 12582912\na 5 139637943173120\n"          // the rest of it
      "c expandable_segments:True\na 6 20971520\nf 3\nf 6\nf 4\n"  // 3 and 6 alike
      "a 7 20971520\na 8 20971520\na 9 20971520\nf 7\nf 8\nf 9\ne\nf 5\nf 2\ne\n";
  const CardReplay card = replay_of(text).card;
  EXPECT_THAT(card.refused, IsEmpty());
  EXPECT_EQ(card.statistics.reserved_bytes.all.current, 0);
}

// ---- Histories ----

// The same four events: at once, the second request takes the first's block; late, it cannot.
TEST(Replay, KeepsALateFreeActiveUntilItIsCompleted) {
  const auto at_once =
      trace_of({alloc(1, 30_MiB), free_requested(1), free_completed(1), alloc(2, 30_MiB)});
  EXPECT_EQ(replay(*at_once).card.statistics.reserved_bytes.all.peak, (30_MiB).count);
  const auto late = trace_of(
      {alloc(1, 30_MiB), free_requested(1), alloc(2, 30_MiB), free_completed(1), alloc(3, 30_MiB)});
  const CardReplay card = replay(*late).card;
  EXPECT_EQ(card.statistics.reserved_bytes.all.peak, (60_MiB).count) << "the third takes the first";
  EXPECT_EQ(card.statistics.active_bytes.all.peak, (60_MiB).count);
}

// ---- Mistakes of the file ----

std::string refusal_of(std::string_view text) {
  try {
    (void)replay_of(text);
  } catch (const InputError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Replay, NamesTheImpossibleEvent) {
  EXPECT_THAT(refusal_of("a 1 512\n# twice\na 1 512\n"),
              HasSubstr("x.txt, event 1: expected an id"));
  EXPECT_THAT(refusal_of("f 1\n"), HasSubstr("x.txt, event 0: expected"));
  EXPECT_THAT(refusal_of("a 1 512\nE 4\n"), HasSubstr("x.txt, event 1: expected a pool"));
  EXPECT_THAT(refusal_of("a 1 512\nc max_splt:4\n"),
              HasSubstr("x.txt, event 1: expected an option"));
}

// The file is wrong, not the caller: it may come from another version of PyTorch.
TEST(Replay, RefusesAFileWithInvalidSettings) {
  const auto trace =
      trace_of({alloc(1, 1_MiB)}, {.format = Format::pickle, .settings = "max_splt:4"});
  EXPECT_THROW((void)replay(*trace), InputError);
  EXPECT_NO_THROW((void)replay(*trace, {.setup = {.settings = ""}}));
}

TEST(Replay, RefusesAnInvalidSetup) {
  EXPECT_THROW((void)replay_of("", {.capacity = 0_B}), UsageError);
  EXPECT_THROW((void)replay_of("", {.fraction = 1.5}), UsageError);
  EXPECT_THROW((void)replay_of("", {.settings = "backend:cudaMallocAsync"}), UsageError);
  EXPECT_THROW((void)replay_of("", {.settings = "max_splt:4"}), UsageError);
  const auto trace = trace_of({alloc(1, 1_MiB)});
  EXPECT_THROW((void)replay(*trace, {.operations = {.device = 3}}), UsageError);
}

// ---- Following ----

class Notes final : public Follower {
 public:
  void before(const Event& event, std::uint64_t number) override {
    text += "(" + std::to_string(number) + " " + std::string(to_string(event.kind));
  }
  void after(const Event&, const allocator::CachingAllocator& card) override {
    text += " " + std::to_string(card.statistics().reserved_bytes.all.current >> 20) + ")";
  }
  void on(const allocator::AllocatorEvent& allocator_event) override {
    text += allocator_event.kind == allocator::AllocatorEvent::Kind::segment_alloc ? " segment"
                                                                                   : " block";
  }
  std::string text;
};

TEST(Replay, ShowsAFollowerEachEventAndItsAllocatorEvents) {
  const auto trace = trace_of({alloc(1, 30_MiB), event_of(Kind::mark)});
  Notes notes;
  (void)replay(*trace, {.follower = &notes});
  EXPECT_EQ(notes.text, "(0 alloc segment block 30)(1 mark 30)");
}

// Two steps of `headroom train model=full model.config=gpt2 weights=random dataset=synthetic
// seq=512 batch_size=4 bf16=true`, recorded on an NVIDIA H200 with expandable segments; the peaks
// are those that its allocator told.
TEST(Replay, OfARealTrainingHasThePeaksOfItsCard) {
  const auto trace =
      open_trace(std::string(HEADROOM_SOURCE_DIR) + "/tests/trace/recorded/gpt2_h200.hrtrace");
  const CardReplay card = replay(*trace, {.setup = {.settings = "expandable_segments:True"}}).card;
  EXPECT_EQ(card.statistics.requested_bytes.all.peak, 4'679'431'472);
  EXPECT_EQ(card.statistics.allocated_bytes.all.peak, 4'679'521'792);
  EXPECT_EQ(card.statistics.reserved_bytes.all.peak, 5'018'484'736);
}

TEST(Replay, EndsWhenItIsCancelled) {
  const auto trace = trace_of({alloc(1, 30_MiB)});
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(replay(*trace, {.cancel = stop.get_token()}).card.operations, 0U);
}

}  // namespace
}  // namespace headroom::trace
