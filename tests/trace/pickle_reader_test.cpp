#include "headroom/trace/pickle_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trace/events_of.h"
#include "tests/trace/pickled.h"

namespace headroom::trace {
namespace {

using testing::all_events;
using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::events_of;
using ::testing::HasSubstr;
using testing::input_error_of;
using ::testing::IsEmpty;
using testing::open_bytes;
using testing::pickled;

// "alloc 4096 100": what most of these tests look at.
std::vector<std::string> lines(std::string_view bytes) {
  std::vector<std::string> result;
  for (const Event& event : events_of(bytes))
    result.push_back(std::string(to_string(event.kind)) + " " + std::to_string(event.address) +
                     " " + std::to_string(event.bytes.count));
  return result;
}

std::string entry(const std::string& action, int address, int size, std::int64_t time = 0,
                  const std::string& more = "") {
  return "{'action': '" + action + "', '" + (action == "oom" ? "device_free" : "addr") +
         "': " + std::to_string(address) + ", 'size': " + std::to_string(size) +
         ", 'stream': 0, 'time_us': " + std::to_string(time) + ", " + more + "}, ";
}

std::string block(int size, const std::string& state, int requested) {
  return "{'size': " + std::to_string(size) + ", 'state': '" + state +
         "', 'requested_size': " + std::to_string(requested) + "}, ";
}

std::string segment(int address, int size, const std::string& blocks,
                    const std::string& more = "") {
  return "{'address': " + std::to_string(address) + ", 'total_size': " + std::to_string(size) +
         ", 'stream': 0, 'device': 0, 'blocks': [" + blocks + "], " + more + "}, ";
}

std::string snapshot(const std::string& entries, const std::string& segments = "",
                     const std::string& more = "", int protocol = 4) {
  return pickled(
      "{'segments': [" + segments + "], 'device_traces': [[" + entries + "]], " + more + "}",
      protocol);
}

TEST(PickleReader, GivesTheSameEventsFromEveryProtocol) {
  for (int protocol = 2; protocol <= 5; ++protocol)
    EXPECT_THAT(
        lines(snapshot(entry("segment_alloc", 4096, 2048) + entry("alloc", 4096, 100) +
                           entry("oom", 77, 5000) + entry("free_requested", 4096, 100) +
                           entry("free_completed", 4096, 100) + entry("segment_free", 4096, 2048),
                       "", "", protocol)),
        ElementsAre("segment_alloc 4096 2048", "alloc 4096 100", "oom 77 5000",
                    "free_requested 4096 100", "free_completed 4096 100", "segment_free 4096 2048"))
        << protocol;
}

TEST(PickleReader, NumbersStreamsByTheirFirstAppearance) {
  const std::string other = "{'action': 'alloc', 'addr': 1, 'size': 1, 'stream': 94321234560}, ";
  const auto events =
      events_of(pickled("{'device_traces': [[" + other + entry("alloc", 2, 1) + other + "]]}"));
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].stream, 1u);
  EXPECT_EQ(events[1].stream, 0u);
  EXPECT_EQ(events[2].stream, 1u);
}

TEST(PickleReader, TurnsSnapshotsAndUnknownActionsIntoMarks) {
  const auto reader = open_bytes(
      snapshot(entry("snapshot", 0, 0) + entry("user_defined", 0, 0, 0, "'user_metadata': 'here'") +
               entry("invented", 0, 0)));
  std::vector<std::string> marks;
  for (const Event& event : all_events(*reader)) {
    EXPECT_EQ(event.kind, Kind::mark);
    marks.emplace_back(reader->names().text(event.operation));
  }
  EXPECT_THAT(marks, ElementsAre("snapshot", "here", "invented"));
}

// ---- The state at the beginning ----

TEST(PickleReader, BeginsWithTheBlocksThatTheHistoryOnlyFrees) {
  EXPECT_THAT(
      lines(snapshot(entry("free_requested", 8192, 300) + entry("free_completed", 8192, 300) +
                     entry("alloc", 8192, 40) + entry("free_requested", 4096, 200))),
      ElementsAre("alloc 4096 200", "alloc 8192 300", "free_requested 8192 300",
                  "free_completed 8192 300", "alloc 8192 40", "free_requested 4096 200"));
}

TEST(PickleReader, BeginsWithActiveBlocksThatTheHistoryNeverNames) {
  const std::string segments =
      segment(4096, 4096,
              block(512, "active_allocated", 500) + block(512, "inactive", 7) +
                  block(1024, "active_pending_free", 1000) + block(2048, "active_allocated", 2000));
  EXPECT_THAT(lines(snapshot(entry("alloc", 6144, 2000), segments)),
              ElementsAre("segment_alloc 4096 4096", "alloc 4096 500", "alloc 5120 1000",
                          "free_requested 5120 1000", "alloc 6144 2000"));
}

TEST(PickleReader, BeginsWithABlockThatWasFreedButWaitedForAnotherStream) {
  EXPECT_THAT(
      lines(snapshot(entry("alloc", 4096, 10) + entry("free_completed", 8192, 300) +
                     entry("free_requested", 4096, 10) + entry("free_completed", 4096, 10))),
      ElementsAre("alloc 8192 300", "free_requested 8192 300", "alloc 4096 10",
                  "free_completed 8192 300", "free_requested 4096 10", "free_completed 4096 10"));
}

TEST(PickleReader, BeginsWithTheSegmentsThatWereThere) {
  // At the end there is one; another was freed; a third came and stayed.
  EXPECT_THAT(lines(snapshot(entry("segment_free", 20480, 512) + entry("segment_alloc", 8192, 1024),
                             segment(4096, 2048, "") + segment(8192, 1024, ""))),
              ElementsAre("segment_alloc 4096 2048", "segment_alloc 20480 512",
                          "segment_free 20480 512", "segment_alloc 8192 1024"));
}

TEST(PickleReader, UndoesTheMappingOfAnExpandableSegment) {
  EXPECT_THAT(lines(snapshot(entry("segment_map", 6144, 2048) + entry("segment_unmap", 4096, 1024),
                             segment(5120, 3072, "", "'is_expandable': True"))),
              ElementsAre("segment_map 4096 1024", "segment_map 5120 1024", "segment_map 6144 2048",
                          "segment_unmap 4096 1024"));
}

TEST(PickleReader, GivesTheBeginningTheTimeOfTheFirstEntry) {
  const auto events = events_of(snapshot(entry("free_requested", 4096, 1, 1700000000000001)));
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].time_ns, 1'700'000'000'000'001'000);
  EXPECT_EQ(events[0].kind, Kind::alloc);
}

// skip_actions can leave out one half of each free.
TEST(PickleReader, ShowsBothHalvesOfAFreeWhenOneWasNotRecorded) {
  const auto expected = ElementsAre("alloc 1 2", "free_requested 1 2", "free_completed 1 2");
  EXPECT_THAT(lines(snapshot(entry("alloc", 1, 2) + entry("free_completed", 1, 2))), expected);
  EXPECT_THAT(lines(snapshot(entry("alloc", 1, 2) + entry("free_requested", 1, 2))), expected);
}

TEST(PickleReader, ReadsSegmentsWithoutAHistory) {
  const std::string segments = segment(4096, 1024, block(1024, "active_allocated", 1000));
  const auto expected = ElementsAre("segment_alloc 4096 1024", "alloc 4096 1000");
  EXPECT_THAT(lines(pickled("{'segments': [" + segments + "]}")), expected);
  EXPECT_THAT(lines(pickled("[" + segments + "]")), expected);  // torch.cuda.memory_snapshot()
}

TEST(PickleReader, ReadsBlocksAsPyTorch113WroteThem) {
  EXPECT_THAT(lines(pickled("[" +
                            segment(4096, 1024,
                                    "{'size': 1024, 'state': 'active_awaiting_free', 'history': "
                                    "[{'addr': 4096, 'real_size': 900, 'frames': []}]}") +
                            "]")),
              ElementsAre("segment_alloc 4096 1024", "alloc 4096 900", "free_requested 4096 900"));
}

// ---- Where, when and how ----

std::string frames(const std::string& list) {
  return "'frames': [" + list + "]";
}

const std::string kInner =
    "{'filename': '/pytorch/aten/src/Linear.cpp', 'line': 0, 'name': "
    "'at::_ops::addmm::redispatch(int)'}, "
    "{'filename': '/pytorch/aten/src/Linear.cpp', 'line': 0, 'name': "
    "'at::_ops::linear::call(int)'}, "
    "{'filename': '/lib/site-packages/torch/nn/linear.py', 'line': 9, 'name': 'forward'}, ";
const std::string kUsers = "{'filename': '/project/train.py', 'line': 12, 'name': 'step'}, ";

TEST(PickleReader, FindsTheUsersLineAndTheOperatorItCalled) {
  const auto reader = open_bytes(snapshot(entry("alloc", 1, 2, 0, frames(kInner + kUsers)) +
                                          entry("alloc", 3, 2, 0, frames(kUsers + kUsers))));
  const auto events = all_events(*reader);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(reader->names().text(events[0].line), "/project/train.py:12");
  EXPECT_EQ(reader->names().text(events[0].operation), "aten::linear");
  EXPECT_EQ(reader->names().text(events[1].operation), "step");
}

TEST(PickleReader, TakesStepAndPhaseFromAnnotations) {
  const auto annotation = [](const std::string& name, const std::string& stage, int time) {
    return "{'name': '" + name + "', 'stage': '" + stage +
           "', 'device': 0, 'time_us': " + std::to_string(time) + "}, ";
  };
  const auto reader = open_bytes(
      snapshot(entry("alloc", 1, 2, 10) + entry("alloc", 3, 2, 20) + entry("alloc", 5, 2, 30), "",
               "'external_annotations': [" + annotation("ProfilerStep#4", "START", 15) +
                   annotation("Optimizer.step#SGD.step", "START", 16) +
                   annotation("Optimizer.step#SGD.step", "END", 25) +
                   annotation("ProfilerStep#4", "END", 26) + "]"));
  std::vector<std::string> seen;
  for (const Event& event : all_events(*reader))
    if (event.kind == Kind::alloc)
      seen.push_back(std::to_string(event.step) + " " + std::string(to_string(event.phase)));
  EXPECT_THAT(seen, ElementsAre("0 unknown", "4 optimizer", "0 unknown"));
}

TEST(PickleReader, MergesDevicesByTime) {
  std::vector<std::string> seen;
  for (const Event& event :
       events_of(pickled("{'device_traces': [[" + entry("alloc", 1, 2, 10) +
                         entry("alloc", 3, 2, 30) + "], [" + entry("alloc", 1, 2, 20) + "]]}")))
    seen.push_back(std::to_string(event.device) + " " + std::to_string(event.address));
  EXPECT_THAT(seen, ElementsAre("0 1", "1 1", "0 3"));
}

TEST(PickleReader, TakesTheSettingsFromTheTextOrElseFromTheFields) {
  const auto settings = [](const std::string& fields) {
    return open_bytes(snapshot("", "", "'allocator_settings': {" + fields + "}"))->about().settings;
  };
  EXPECT_EQ(settings("'PYTORCH_CUDA_ALLOC_CONF': 'max_split_size_mb:64', 'max_split_size': 1"),
            "max_split_size_mb:64");
  EXPECT_EQ(settings("'PYTORCH_CUDA_ALLOC_CONF': '', 'max_split_size': 536870912, "
                     "'expandable_segments': True, 'garbage_collection_threshold': 0.5"),
            "max_split_size_mb:512,garbage_collection_threshold:0.5,expandable_segments:True");
  EXPECT_EQ(settings("'PYTORCH_CUDA_ALLOC_CONF': '', 'max_split_size': -1, "
                     "'expandable_segments': False, 'garbage_collection_threshold': 0.0"),
            "");
}

TEST(PickleReader, KnowsWhetherTimesWereRecorded) {
  EXPECT_FALSE(open_bytes(snapshot(entry("alloc", 1, 2)))->about().times_are_known);
  EXPECT_TRUE(open_bytes(snapshot(entry("alloc", 1, 2, 5)))->about().times_are_known);
}

// ---- Files that are none ----

TEST(PickleReader, SaysWhatASnapshotLacksAndWhere) {
  EXPECT_THAT(input_error_of(pickled("{'weights': 1}")),
              AllOf(HasSubstr("expected a memory snapshot"), HasSubstr("of a.trace")));
  EXPECT_THAT(input_error_of(pickled("'text'")), HasSubstr("expected a memory snapshot"));
  EXPECT_THAT(input_error_of(snapshot("{'action': 'alloc', 'size': 2}")),
              AllOf(HasSubstr("a dict with addr"), HasSubstr("at byte ")));
  EXPECT_THAT(input_error_of(snapshot("{'action': 'alloc', 'addr': 2**64, 'size': 2}")),
              HasSubstr("a whole number of 64 bits as addr"));
  EXPECT_THAT(input_error_of(snapshot(entry("alloc", 1, -5))), HasSubstr("a size as size"));
  EXPECT_THAT(input_error_of(snapshot("7")), HasSubstr("a dict for each entry"));
  EXPECT_THAT(input_error_of(snapshot("", "{'address': 1, 'total_size': 2}")),
              HasSubstr("a list of blocks"));
}

// Such a file of 10 MB could ask for 10^12 events.
TEST(PickleReader, RefusesOneListForManyDevices) {
  EXPECT_THAT(input_error_of(pickled("{'device_traces': [[]] * 3}")),
              HasSubstr("a list of its own for each device"));
  EXPECT_THAT(input_error_of(pickled("[{'address': 1, 'total_size': 2, 'blocks': []}] * 2")),
              HasSubstr("a list of its own for the blocks"));
}

TEST(PickleReader, RefusesAListThatContainsItself) {
  EXPECT_THAT(input_error_of(pickled("(lambda l: [l.append(l), {'device_traces': l}][1])([])")),
              HasSubstr("a dict for each entry"));
}

}  // namespace
}  // namespace headroom::trace
