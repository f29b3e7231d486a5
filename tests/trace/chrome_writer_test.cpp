#include "headroom/trace/chrome_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/base/json.h"
#include "headroom/trace/memory_reader.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/temporary_folder.h"
#include "tests/trace/pickled.h"

namespace headroom::trace {
namespace {

using headroom::testing::FileSizeLimit;
using headroom::testing::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::output_of;

Event event_of(Kind kind, std::uint64_t address, std::int64_t bytes, std::int64_t time_us) {
  Event event;
  event.kind = kind;
  event.address = address;
  event.bytes = Bytes{bytes};
  event.time_ns = time_us * 1000;
  return event;
}

Json written(std::vector<Event> events, Names names = {}, bool times_are_known = true,
             const ChromeOptions& options = {}) {
  const TemporaryFolder folder;
  const auto trace =
      read_memory(std::move(events), std::move(names), {.times_are_known = times_are_known});
  EXPECT_TRUE(write_chrome(folder.path() / "t.json", *trace, options));
  return parse_json(read_input(folder.path() / "t.json"), "t.json");
}

// "10.500 600" for each sample of a track.
std::vector<std::string> samples(const Json& file, const std::string& track, int process = 1) {
  std::vector<std::string> result;
  for (const Json& event : file["traceEvents"])
    if (event["ph"] == "C" && event["name"] == track && event["pid"] == process)
      result.push_back(event["ts"].dump() + " " + event["args"]["bytes"].dump());
  return result;
}

// "step 1: 0.0 for 20.0"
std::vector<std::string> slices(const Json& file, int lane) {
  std::vector<std::string> result;
  for (const Json& event : file["traceEvents"])
    if (event["ph"] == "X" && event["tid"] == lane)
      result.push_back(event["name"].get<std::string>() + ": " + event["ts"].dump() + " for " +
                       event["dur"].dump());
  return result;
}

TEST(ChromeWriter, DrawsWhatIsAllocatedReservedActiveAndRequested) {
  const Json file = written({event_of(Kind::segment_alloc, 4096, 2048, 1000),
                             event_of(Kind::alloc, 4096, 600, 1010),
                             event_of(Kind::free_requested, 4096, 600, 1020),
                             event_of(Kind::free_completed, 4096, 600, 1030),
                             event_of(Kind::segment_free, 4096, 2048, 1040)});
  EXPECT_THAT(samples(file, "allocated"), ElementsAre("0.0 0", "10.0 1024", "20.0 0"));
  EXPECT_THAT(samples(file, "requested"), ElementsAre("0.0 0", "10.0 600", "20.0 0"));
  EXPECT_THAT(samples(file, "reserved"), ElementsAre("0.0 2048", "40.0 0"));
  EXPECT_THAT(samples(file, "active"), ElementsAre("30.0 0"));
}

TEST(ChromeWriter, DrawsNothingThatTheTraceCannotTell) {
  const Json file =
      written({event_of(Kind::alloc, 1, 600, 0), event_of(Kind::free_requested, 1, 0, 1)});
  EXPECT_THAT(samples(file, "reserved"), IsEmpty());
  EXPECT_THAT(samples(file, "active"), IsEmpty());
}

TEST(ChromeWriter, GivesEachDeviceAProcessWithAName) {
  Event other = event_of(Kind::alloc, 1, 100, 5);
  other.device = 3;
  const Json file = written({event_of(Kind::alloc, 1, 600, 0), other});
  EXPECT_THAT(samples(file, "requested", 1), ElementsAre("0.0 600"));
  EXPECT_THAT(samples(file, "requested", 4), ElementsAre("5.0 100"));
  std::vector<std::string> names;
  for (const Json& event : file["traceEvents"])
    if (event["name"] == "process_name") names.push_back(event["args"]["name"]);
  EXPECT_THAT(names, ElementsAre("GPU 0", "GPU 3"));
}

TEST(ChromeWriter, ShowsRefusalsAndMarks) {
  Names names;
  Event mark = event_of(Kind::mark, 0, 0, 7);
  mark.operation = names.number("epoch \"2\"\n");
  const Json file = written({event_of(Kind::oom, 0, 3 << 20, 5), mark}, names);
  std::vector<std::string> seen;
  for (const Json& event : file["traceEvents"])
    if (event["ph"] == "i")
      seen.push_back(event["ts"].dump() + " " + event["name"].get<std::string>());
  EXPECT_THAT(seen, ElementsAre("0.0 out of memory: asked for 3.0 MiB", "2.0 epoch \"2\"\n"));
}

TEST(ChromeWriter, MakesSlicesOfStepsPhasesAndModules) {
  Names names;
  std::vector<Event> events;
  for (int i = 0; i < 4; ++i) {
    events.push_back(event_of(Kind::alloc, static_cast<std::uint64_t>(i), 1, 10 * i));
    events.back().step = i < 2 ? 1 : 2;
    events.back().phase = i == 1 ? Phase::backward : Phase::forward;
    events.back().module = names.number(i < 3 ? "h.0" : "h.1");
  }
  const Json file = written(events, names);
  EXPECT_THAT(slices(file, 1), ElementsAre("step 1: 0.0 for 20.0", "step 2: 20.0 for 10.0"));
  EXPECT_THAT(slices(file, 2), ElementsAre("forward: 0.0 for 10.0", "backward: 10.0 for 10.0",
                                           "forward: 20.0 for 10.0"));
  EXPECT_THAT(slices(file, 3), ElementsAre("h.0: 0.0 for 30.0", "h.1: 30.0 for 0.0"));
  EXPECT_THAT(slices(written(events, names, true, {.slices = false}), 1), IsEmpty());
}

TEST(ChromeWriter, CountsEventsWhereTimesAreUnknownAndSaysSo) {
  const Json file =
      written({event_of(Kind::alloc, 1, 600, 0), event_of(Kind::alloc, 2, 600, 0)}, {}, false);
  EXPECT_THAT(samples(file, "requested"), ElementsAre("0.0 600", "1.0 1200"));
  EXPECT_EQ(file["otherData"]["times"], "unknown: one microsecond stands for one event");
}

TEST(ChromeWriter, KeepsPeaksAndTroughsWhenItThins) {
  std::vector<Event> events;
  std::int64_t highest = 0;
  for (std::int64_t i = 0; i < 100'000; ++i) {
    // A wave of blocks that replace each other, with one peak of a single event.
    const std::int64_t bytes = i == 77'777 ? 1 << 30 : 512 * (100 + i % 97);
    events.push_back(event_of(Kind::alloc, 1, bytes, i));
    highest = std::max(highest, bytes);
  }
  const Json file = written(events, {}, true, {.most_samples = 4000});
  const auto left = samples(file, "allocated");
  EXPECT_LE(left.size() + samples(file, "requested").size(), 4000u);
  EXPECT_GE(left.size(), 500u);
  EXPECT_THAT(left, ::testing::Contains("77777.0 " + std::to_string(highest)));
  EXPECT_EQ(left.front(), "0.0 51200");
  EXPECT_EQ(left.back(), "99999.0 " + std::to_string(512 * (100 + 99'999 % 97)));
}

TEST(ChromeWriter, IsJsonForPythonToo) {
  const TemporaryFolder folder;
  Names names;
  Event mark = event_of(Kind::mark, 0, 0, 7);
  mark.operation = names.number("caf\xe9 \x01 \u2028");
  const auto trace = read_memory({mark}, names, {.program = "a \"b\"", .times_are_known = true});
  ASSERT_TRUE(write_chrome(folder.path() / "t.json", *trace));
  EXPECT_EQ(output_of(std::string(PYTHON) + " -c \"import json; print(len(json.load(open('" +
                      (folder.path() / "t.json").string() + "'))['traceEvents']))\""),
            "8\n");  // names of a process and its lanes, two tracks, the mark
}

TEST(ChromeWriter, IsAFileOfNothingForATraceOfNothing) {
  EXPECT_THAT(written({})["traceEvents"], IsEmpty());
}

TEST(ChromeWriter, LeavesTheOldFileWhenTheDiskIsFullOrItIsStopped) {
  const TemporaryFolder folder;
  write_file_atomically(folder.path() / "t.json", "old");
  std::vector<Event> events;
  for (std::int64_t i = 0; i < 50'000; ++i)
    events.push_back(event_of(Kind::alloc, static_cast<std::uint64_t>(i), 600, i));
  {
    const FileSizeLimit limit(1 << 20);
    EXPECT_THROW(write_chrome(folder.path() / "t.json", *read_memory(events, {})), WriteError);
  }
  std::stop_source stop;
  stop.request_stop();
  EXPECT_FALSE(
      write_chrome(folder.path() / "t.json", *read_memory(events, {}), {}, stop.get_token()));
  EXPECT_EQ(read_file(folder.path() / "t.json"), "old");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

}  // namespace
}  // namespace headroom::trace
