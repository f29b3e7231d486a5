// From the events of a trace to what the allocator is asked.
#include "headroom/trace/operations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/base/error.h"
#include "tests/trace/written_events.h"

namespace headroom::trace {
namespace {

using namespace headroom::literals;
using namespace headroom::trace::testing;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using OperationKind = allocator::Operation::Kind;

Batch all_of(Operations& operations) {
  Batch batch;
  while (operations.next(batch, 3)) {
  }
  return batch;
}

// "a0 f0": kinds and ids.
std::string text_of(const Batch& batch) {
  std::string text;
  for (const allocator::Operation& operation : batch.operations) {
    const std::string id = std::to_string(operation.id), on = std::to_string(operation.stream);
    text += text.empty() ? "" : " ";
    switch (operation.kind) {
      case OperationKind::allocate:
        text += "a" + id;
        break;
      case OperationKind::free:
        text += "f" + id;
        break;
      case OperationKind::record_stream:
        text += "r" + id + "@" + on;
        break;
      case OperationKind::complete_events:
        text += "y@" + on;
        break;
      default:
        text += "?" + std::to_string(static_cast<int>(operation.kind));
    }
  }
  return text;
}

std::string converted(std::vector<Event> events, Format format = Format::pickle) {
  const auto trace = trace_of(std::move(events), {.format = format});
  Operations operations(*trace);
  return text_of(all_of(operations));
}

TEST(Operations, GiveSmallNumbersThatAreUsedAgainAfterAFree) {
  EXPECT_EQ(converted({alloc(0x7f0000000000, 1_MiB), alloc(0x7f0000100000, 1_MiB),
                       free_requested(0x7f0000000000), free_completed(0x7f0000000000),
                       alloc(0x7f0000900000, 1_MiB), free_requested(0x7f0000900000)}),
            "a0 a1 f0 a0 f0");
}

TEST(Operations, KeepWhichEventTheyComeFrom) {
  const auto trace = trace_of({event_of(Kind::segment_alloc), alloc(1, 1_MiB), event_of(Kind::mark),
                               free_requested(1), free_completed(1), event_of(Kind::empty_cache)});
  Operations operations(*trace);
  const Batch batch = all_of(operations);
  EXPECT_THAT(batch.numbers, ElementsAre(1, 3, 5));
  EXPECT_EQ(operations.noticed().events, 6U);
}

TEST(Operations, GiveEachEventWhenEventsAreKept) {
  const auto trace =
      trace_of({event_of(Kind::segment_alloc), alloc(1, 1_MiB), event_of(Kind::mark)});
  Operations operations(*trace, {.keep_events = true});
  const Batch batch = all_of(operations);
  EXPECT_THAT(batch.numbers, ElementsAre(0, 1, 2));
  EXPECT_EQ(batch.operations[2].kind, OperationKind::nothing);
  EXPECT_EQ(batch.events[2].kind, Kind::mark);
}

// A free that waited for another stream was completed when other things had happened.
TEST(Operations, KeepABlockUntilItsLateFreeIsCompleted) {
  EXPECT_EQ(converted({alloc(1, 1_MiB), free_requested(1), alloc(2, 1_MiB), free_completed(1)}),
            "a0 r0@1 f0 a0 y@1");
}

TEST(Operations, UseAMadeUpStreamAgainWhenItsFreeIsCompleted) {
  const auto trace =
      trace_of({alloc(1, 1_MiB), alloc(2, 1_MiB), free_requested(1), free_requested(2),
                event_of(Kind::mark), free_completed(2), alloc(3, 1_MiB, 1), free_requested(3),
                event_of(Kind::mark), free_completed(3), free_completed(1)});
  Operations operations(*trace);
  EXPECT_EQ(text_of(all_of(operations)), "a0 a1 r0@1 f0 r1@2 f1 y@2 a1 r1@2 f1 y@2 y@1");
  EXPECT_EQ(operations.stream_in_file(1), std::nullopt);
  EXPECT_EQ(operations.stream_in_file(3), 1U) << "the file's second stream comes after the two";
}

TEST(Operations, TakeTheFreeOfAPlainListAsDone) {
  EXPECT_EQ(converted({alloc(1, 1_MiB), free_requested(1), alloc(2, 1_MiB)}, Format::plain),
            "a0 f0 a0");
}

TEST(Operations, TellAHistoryFromAListByItsFirstFrees) {
  const std::vector<Event> list{alloc(1, 1_MiB), free_requested(1), alloc(2, 1_MiB)};
  EXPECT_EQ(converted(list, Format::headroom), "a0 f0 a0");
  std::vector<Event> history = list;
  history.push_back(free_completed(1));
  EXPECT_EQ(converted(history, Format::headroom), "a0 r0@1 f0 a0 y@1");
}

TEST(Operations, IgnoreTheStreamsOfAHistoryBecauseItsCompletionsAreExact) {
  const std::vector<Event> events{alloc(1, 1_MiB), event_of(Kind::record_stream, 1, {}, 1),
                                  event_of(Kind::complete_events), free_requested(1),
                                  free_completed(1)};
  EXPECT_EQ(converted(events), "a0 f0");
  EXPECT_EQ(converted(events, Format::plain), "a0 r0@1 y@0 f0");
}

TEST(Operations, MakeNoRequestForZeroBytes) {
  EXPECT_EQ(converted({alloc(1, 0_B), free_requested(1)}, Format::plain), "");
}

// ---- What a recording missed ----

TEST(Operations, FreeALiveAddressBeforeAHistoryAllocatesItAgain) {
  const auto trace =
      trace_of({alloc(1, 1_MiB), alloc(1, 2_MiB), free_requested(1), free_completed(1)});
  Operations operations(*trace);
  EXPECT_EQ(text_of(all_of(operations)), "a0 f0 a0 f0");
  EXPECT_EQ(operations.noticed().missing_frees, 1U);
}

TEST(Operations, CountFreesOfMemoryAllocatedBeforeTheRecording) {
  const auto trace = trace_of({free_requested(9), free_completed(9), alloc(1, 1_MiB)});
  Operations operations(*trace);
  EXPECT_EQ(text_of(all_of(operations)), "a0");
  EXPECT_EQ(operations.noticed().unknown_frees, 1U);
}

TEST(Operations, RefuseAPlainFreeOfAnUnknownId) {
  const auto trace =
      trace_of({alloc(1, 1_MiB), free_requested(1), free_requested(1)}, {.format = Format::plain});
  Operations operations(*trace, {.name = "x.txt"});
  try {
    all_of(operations);
    FAIL() << "accepted";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("x.txt, event 2"));
  }
}

// ---- Devices ----

TEST(Operations, TakeTheFirstDeviceThatAppears) {
  const auto trace = trace_of({event_of(Kind::mark), on_device(1, alloc(1, 1_MiB)), alloc(1, 2_MiB),
                               on_device(1, free_requested(1)), free_requested(1),
                               on_device(1, free_completed(1))});
  Operations operations(*trace);
  const Batch batch = all_of(operations);
  EXPECT_EQ(text_of(batch), "a0 f0") << "the other device's event between them does not count";
  EXPECT_EQ(batch.operations[0].bytes, (1_MiB).count);
  EXPECT_EQ(operations.noticed().of_other_devices, 2U);
  EXPECT_THAT(operations.noticed().devices, ElementsAre(1, 0));
}

// Looking for what comes after the last free once kept all the rest of the trace in memory.
TEST(Operations, ForgetEventsOfOtherDevicesWhenTheyLookAhead) {
  std::vector<Event> events{alloc(1, 1_MiB), free_requested(1)};
  for (int i = 0; i < 1000; ++i) events.push_back(on_device(1, alloc(1, 1_MiB)));
  const auto trace = trace_of(events);
  Operations operations(*trace);
  Batch batch;
  ASSERT_TRUE(operations.next(batch, 2));
  EXPECT_EQ(text_of(batch), "a0 f0");
  EXPECT_EQ(operations.noticed().of_other_devices, 1000U);
}

TEST(Operations, TakeTheDeviceThatIsNamed) {
  const auto trace = trace_of({on_device(1, alloc(1, 1_MiB)), alloc(1, 2_MiB)});
  Operations operations(*trace, {.device = 0});
  const Batch batch = all_of(operations);
  EXPECT_THAT(batch.numbers, ElementsAre(1));
}

TEST(Operations, KeepTheFirstOutOfMemoryThatWasRecorded) {
  Event oom{.address = 1000, .bytes = 5_MiB, .kind = Kind::oom};
  const auto trace = trace_of({alloc(1, 1_MiB), oom, oom}, {.format = Format::pickle});
  Operations operations(*trace);
  static_cast<void>(all_of(operations));
  const Noticed& noticed = operations.noticed();
  EXPECT_EQ(noticed.recorded_refusals, 2U);
  EXPECT_EQ(noticed.first_recorded_refusal->event, 1U);
  EXPECT_EQ(noticed.first_recorded_refusal->asked, 5_MiB);
  EXPECT_EQ(noticed.first_recorded_refusal->free, 1000_B);
}

}  // namespace
}  // namespace headroom::trace
