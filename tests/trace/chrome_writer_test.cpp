#include "headroom/trace/chrome_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/base/json.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/temporary_folder.h"
#include "tests/trace/pickled.h"
#include "tests/trace/written_events.h"

namespace headroom::trace {
namespace {

using namespace headroom::literals;
using namespace headroom::trace::testing;
using headroom::testing::FileSizeLimit;
using headroom::testing::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// An event, and what the card looked like after it.
struct Entry {
  Event event;
  Figures figures = {};
};

// The entry of a single allocation.
Entry allocation(std::int64_t time_us, std::uint64_t address, Bytes bytes) {
  return {at_us(time_us, alloc(address, bytes)), {.allocated = bytes}};
}

void write(const std::filesystem::path& path, const std::vector<Entry>& entries,
           const Names& names = {}, const About& about = {.times_are_known = true},
           std::uint64_t most_samples = 1'000'000) {
  trace::ChromeWriter writer(path, about, names, most_samples);
  for (const auto& [event, figures] : entries) writer.append(event, figures);
  writer.finish();
}

Json written(const std::vector<Entry>& entries, const Names& names = {},
             bool times_are_known = true, std::uint64_t most_samples = 1'000'000) {
  const TemporaryFolder folder;
  write(folder.path() / "t.json", entries, names, {.times_are_known = times_are_known},
        most_samples);
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
  const Event first = at_us(1000, alloc(4096, 600_B)), second = at_us(1010, free_requested(4096));
  const Json file =
      written({{first, {1024_B, 2_MiB, 1024_B, 600_B}}, {second, {0_B, 2_MiB, 1024_B, 0_B}}});
  EXPECT_THAT(samples(file, "allocated"), ElementsAre("0.0 1024", "10.0 0"));
  EXPECT_THAT(samples(file, "requested"), ElementsAre("0.0 600", "10.0 0"));
  EXPECT_THAT(samples(file, "reserved"), ElementsAre("0.0 2097152")) << "it did not change";
  EXPECT_THAT(samples(file, "active"), ElementsAre("0.0 1024"));
}

TEST(ChromeWriter, DrawsNoUnknownFigure) {
  const Json file = written({allocation(0, 1, 600_B)});
  EXPECT_THAT(samples(file, "allocated"), ElementsAre("0.0 600"));
  EXPECT_THAT(samples(file, "reserved"), IsEmpty());
  EXPECT_THAT(samples(file, "active"), IsEmpty());
}

TEST(ChromeWriter, GivesEachDeviceAProcessWithAName) {
  Entry other = allocation(5, 1, 100_B);
  other.event.device = 3;
  const Json file = written({allocation(0, 1, 600_B), other});
  EXPECT_THAT(samples(file, "allocated", 1), ElementsAre("0.0 600"));
  EXPECT_THAT(samples(file, "allocated", 4), ElementsAre("5.0 100"));
  std::vector<std::string> names;
  for (const Json& event : file["traceEvents"])
    if (event["name"] == "process_name") names.push_back(event["args"]["name"]);
  EXPECT_THAT(names, ElementsAre("GPU 0", "GPU 3"));
}

TEST(ChromeWriter, ShowsRefusalsAndMarks) {
  Names names;
  Event mark = at_us(7, event_of(Kind::mark));
  mark.operation = names.number("epoch \"2\"\n");
  const Json file = written({{at_us(5, event_of(Kind::oom, 0, 3_MiB))}, {mark}}, names);
  std::vector<std::string> seen;
  for (const Json& event : file["traceEvents"])
    if (event["ph"] == "i")
      seen.push_back(event["ts"].dump() + " " + event["name"].get<std::string>());
  EXPECT_THAT(seen, ElementsAre("0.0 out of memory: asked for 3.0 MiB", "2.0 epoch \"2\"\n"));
}

TEST(ChromeWriter, MakesSlicesOfStepsPhasesAndModules) {
  Names names;
  std::vector<Entry> entries;
  for (int i = 0; i < 4; ++i) {
    Event& event = entries.emplace_back(allocation(10 * i, 1, 1_B)).event;
    event.step = i < 2 ? 1 : 2;
    event.phase = i == 1 ? Phase::backward : Phase::forward;
    event.module = names.number(i < 3 ? "h.0" : "h.1");
  }
  const Json file = written(entries, names);
  EXPECT_THAT(slices(file, 1), ElementsAre("step 1: 0.0 for 20.0", "step 2: 20.0 for 10.0"));
  EXPECT_THAT(slices(file, 2), ElementsAre("forward: 0.0 for 10.0", "backward: 10.0 for 10.0",
                                           "forward: 20.0 for 10.0"));
  EXPECT_THAT(slices(file, 3), ElementsAre("h.0: 0.0 for 30.0", "h.1: 30.0 for 0.0"));
}

TEST(ChromeWriter, CountsEventsWhereTimesAreUnknownAndSaysSo) {
  const Json file = written({allocation(0, 1, 600_B), allocation(0, 2, 1200_B)}, {}, false);
  EXPECT_THAT(samples(file, "allocated"), ElementsAre("0.0 600", "1.0 1200"));
  EXPECT_EQ(file["otherData"]["times"], "unknown: one microsecond stands for one event");
}

TEST(ChromeWriter, KeepsPeaksAndTroughsWhenItThins) {
  std::vector<Entry> entries;
  std::int64_t highest = 0;
  for (std::int64_t i = 0; i < 100'000; ++i) {
    // A wave, with one peak of a single event.
    const std::int64_t bytes = i == 77'777 ? 1 << 30 : 512 * (100 + i % 97);
    entries.push_back(allocation(i, 1, Bytes{bytes}));
    highest = std::max(highest, bytes);
  }
  const Json file = written(entries, {}, true, 4000);
  const auto left = samples(file, "allocated");
  EXPECT_LE(left.size(), 4000u);
  EXPECT_GE(left.size(), 500u);
  EXPECT_THAT(left, ::testing::Contains("77777.0 " + std::to_string(highest)));
  EXPECT_EQ(left.front(), "0.0 51200");
  EXPECT_EQ(left.back(), "99999.0 " + std::to_string(512 * (100 + 99'999 % 97)));
}

TEST(ChromeWriter, IsJsonForPythonToo) {
  const TemporaryFolder folder;
  Names names;
  Event mark = at_us(7, event_of(Kind::mark));
  mark.operation = names.number("caf\xe9 \x01 \u2028");
  write(folder.path() / "t.json", {{mark, {.allocated = 0_B}}}, names,
        {.program = "a \"b\"", .times_are_known = true});
  EXPECT_EQ(output_of(std::string(PYTHON) + " -c \"import json; print(len(json.load(open('" +
                      (folder.path() / "t.json").string() + "'))['traceEvents']))\""),
            "7\n");  // names of a process and its lanes, a track, the mark
}

TEST(ChromeWriter, WritesAValidFileForAnEmptyTrace) {
  EXPECT_THAT(written({})["traceEvents"], IsEmpty());
}

TEST(ChromeWriter, LeavesTheOldFileWhenTheDiskIsFull) {
  const TemporaryFolder folder;
  write_file_atomically(folder.path() / "t.json", "old");
  std::vector<Entry> entries;
  for (std::int64_t i = 0; i < 50'000; ++i) entries.push_back(allocation(i, 1, Bytes{i}));
  {
    const FileSizeLimit limit(1 << 20);
    EXPECT_THROW(write(folder.path() / "t.json", entries), WriteError);
  }
  EXPECT_EQ(read_file(folder.path() / "t.json"), "old");
  EXPECT_THAT(folder.names(), ElementsAre("t.json"));
}

}  // namespace
}  // namespace headroom::trace
