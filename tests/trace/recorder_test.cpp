#include "headroom/trace/recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "headroom/trace/memory_reader.h"
#include "headroom/trace/recording_observer.h"
#include "tests/trace/events_of.h"
#include "tests/trace/written_events.h"

namespace headroom::trace {
namespace {

using testing::all_events;
using testing::alloc;
using ::testing::ElementsAre;

// Half a KiB, as most of these tests care about the order only.
Event allocation(std::uint64_t address) {
  return alloc(address, Bytes{512});
}

std::vector<Event> held(const Recorder& recorder) {
  return all_events(*read_memory(recorder));
}

TEST(Recorder, ReturnsTheRecordedEvents) {
  Recorder recorder;
  std::vector<Event> events;
  for (std::uint64_t i = 0; i < 50'000; ++i) recorder.append(events.emplace_back(allocation(i)));
  EXPECT_EQ(held(recorder), events);
  EXPECT_EQ(recorder.recorded(), 50'000U);
  EXPECT_EQ(recorder.dropped(), 0U);
}

TEST(Recorder, KeepsTheLastEventsWhenThereIsALimit) {
  for (const std::uint64_t limit : {1ULL, 1000ULL, 16'384ULL, 16'385ULL, 40'000ULL}) {
    Recorder recorder({.limit = limit});
    for (std::uint64_t i = 0; i < 100'000; ++i) recorder.append(allocation(i));
    const auto events = held(recorder);
    ASSERT_EQ(events.size(), limit);
    EXPECT_EQ(events.front().address, 100'000 - limit);
    EXPECT_EQ(events.back().address, 99'999U);
    EXPECT_EQ(recorder.dropped(), 100'000 - limit);
    EXPECT_THROW(static_cast<void>(recorder.event(99'999 - limit)), InternalError);
  }
}

TEST(Recorder, KeepsAllAsLongAsTheLimitIsNotReached) {
  Recorder recorder({.limit = 5});
  for (std::uint64_t i = 0; i < 5; ++i) recorder.append(allocation(i));
  EXPECT_EQ(held(recorder).size(), 5U);
  EXPECT_EQ(recorder.dropped(), 0U);
}

TEST(Recorder, FillsInTheThreadsModuleAndOperator) {
  Recorder recorder;
  const Name block = recorder.name("h.0"), attention = recorder.name("h.0.attn"),
             multiply = recorder.name("aten::mm");
  {
    const ModuleScope outer(recorder, block);
    {
      const ModuleScope inner(recorder, attention);
      const OperationScope operation("aten::mm");
      recorder.append(allocation(1));
    }
    recorder.append(allocation(2));
  }
  recorder.append(allocation(3));
  const auto events = held(recorder);
  EXPECT_EQ(std::pair(events[0].module, events[0].operation), std::pair(attention, multiply));
  EXPECT_EQ(std::pair(events[1].module, events[1].operation), std::pair(block, Name{0}));
  EXPECT_EQ(std::pair(events[2].module, events[2].operation), std::pair(Name{0}, Name{0}));
}

TEST(Recorder, JoinsAnOperatorAndItsOverload) {
  Recorder recorder;
  const OperationScope operation("aten::add", "Tensor");
  recorder.append(allocation(1));
  EXPECT_EQ(recorder.names().text(held(recorder)[0].operation), "aten::add.Tensor");
}

TEST(Recorder, KeepsTheEventsOwnModuleAndStep) {
  Recorder recorder;
  const Name outer = recorder.name("outer"), own = recorder.name("own");
  const ModuleScope module(recorder, outer);
  const OperationScope operation("outer");
  Event event = allocation(1);
  event.module = event.operation = own;
  event.step = 9;
  recorder.append(event);
  recorder.mark("here", 5);
  Event defaults;
  defaults.kind = Kind::settings;  // whose text may be empty
  recorder.append(defaults);
  const auto events = held(recorder);
  EXPECT_EQ(events[0], event);
  EXPECT_EQ(recorder.names().text(events[1].operation), "here");
  EXPECT_EQ(events[1].time_ns, 5);
  EXPECT_EQ(events[2].operation, 0U);
}

// Autograd's threads: step and phase are the same for them, the training thread's module is not.
TEST(Recorder, SharesStepAndPhaseButNotModulesAmongThreads) {
  Recorder recorder;
  const Name forward = recorder.name("h.0"), backward = recorder.name("h.7");
  const ModuleScope module(recorder, forward);
  EXPECT_EQ(recorder.set_step(4), 0U);
  {
    const PhaseScope phase(recorder, Phase::backward);
    std::thread([&] {
      recorder.append(allocation(1));
      const ModuleScope own(recorder, backward);
      recorder.append(allocation(2));
    }).join();
  }
  recorder.append(allocation(3));
  const auto events = held(recorder);
  EXPECT_EQ(events[0].module, 0U);
  EXPECT_EQ(events[1].module, backward);
  EXPECT_EQ(events[1].phase, Phase::backward);
  EXPECT_EQ(events[1].step, 4U);
  EXPECT_EQ(events[2].module, forward);
  EXPECT_EQ(events[2].phase, Phase::unknown);
}

TEST(Recorder, IgnoresTheScopesOfAnotherRecorder) {
  Recorder one, other;
  const ModuleScope module(one, one.name("h.0"));
  other.append(allocation(1));
  EXPECT_EQ(held(other)[0].module, 0U);
}

TEST(Recorder, TakesEventsOfSeveralThreadsAtOnce) {
  Recorder recorder;
  const auto work = [&](std::uint64_t thread) {
    for (std::uint64_t i = 0; i < 20'000; ++i) {
      const ModuleScope module(recorder, recorder.name("m" + std::to_string(i % 50)));
      recorder.append(allocation(thread << 32U | i));
    }
  };
  std::thread first(work, 1), second(work, 2);
  first.join();
  second.join();
  std::uint64_t next[3] = {};
  for (const Event& event : held(recorder)) {
    EXPECT_EQ(event.address & 0xffff'ffffU, next[event.address >> 32U]++)
        << "in its thread's order";
    ASSERT_EQ(recorder.names().text(event.module),
              "m" + std::to_string((event.address & 0xffffU) % 50));
  }
  EXPECT_EQ(next[1] + next[2], 40'000U);
}

TEST(RecordingObserver, RecordsTheAllocatorsEvents) {
  Recorder recorder;
  std::int64_t clock = 100;
  RecordingObserver observer(recorder, {.device = 3, .now_ns = [&] { return clock++; }});
  allocator::CachingAllocator card;
  card.observe(&observer);
  card.free(card.allocate(Bytes{1000}));
  card.empty_cache();
  std::vector<Kind> kinds;
  for (const Event& event : held(recorder)) {
    kinds.push_back(event.kind);
    EXPECT_EQ(event.device, 3);
  }
  EXPECT_THAT(kinds, ElementsAre(Kind::segment_alloc, Kind::alloc, Kind::free_requested,
                                 Kind::free_completed, Kind::segment_free));
  const Event alloc = held(recorder)[1];
  EXPECT_EQ(alloc.bytes, Bytes{1000}) << "as requested";
  EXPECT_EQ(alloc.address, held(recorder)[2].address);
  EXPECT_EQ(alloc.time_ns, 101);
}

TEST(ReadMemory, GivesEventsAndNamesLikeAFile) {
  Names names;
  Event event = allocation(7);
  event.module = names.number("h.0");
  const auto trace = testing::read_memory({event, allocation(8)}, names, {.capacity = Bytes{5}});
  EXPECT_EQ(trace->size(), 2U);
  EXPECT_THAT(all_events(*trace), ElementsAre(event, allocation(8)));
  EXPECT_EQ(trace->names().text(event.module), "h.0");
  EXPECT_EQ(trace->about().capacity, Bytes{5});
  EXPECT_EQ(trace->position(), 2U);
}

}  // namespace
}  // namespace headroom::trace
