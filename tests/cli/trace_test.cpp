// `headroom trace`: its documents for scripts and its tables for people.
// tests/trace/replay_test.cpp and what_if_test.cpp derive the figures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/trace/file_writer.h"
#include "tests/cli/trace_world.h"
#include "tests/trace/written_events.h"

namespace headroom::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using trace::testing::alloc;
using trace::testing::free_completed;
using trace::testing::free_requested;
using trace::testing::on_device;

void write_trace(const std::string& path, const std::vector<trace::Event>& events,
                 const trace::About& about = {}) {
  const trace::Names names;
  trace::TraceWriter writer(path, about, names);
  for (const trace::Event& event : events) writer.append(event);
  writer.close();
}

// ---- replay ----

TEST_F(Trace, ReplayHasEveryKeyOfTheContract) {
  const Outcome outcome = replay("a 1 3000000\nf 1\n", {"--json"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.err, "");
  const Json json = outcome.json();
  const auto amount = [](std::int64_t current, std::int64_t peak) {
    return Json{{"current", current}, {"peak", peak}};
  };
  EXPECT_EQ(json["allocated"], amount(0, 3'000'320));
  EXPECT_EQ(json["active"], amount(0, 3'000'320));
  EXPECT_EQ(json["reserved"], amount(20'971'520, 20'971'520));
  EXPECT_EQ(json["requested"], amount(0, 3'000'000));
  EXPECT_EQ(json["inactive_split"], amount(0, 17'971'200));
  EXPECT_EQ(json["segments"], amount(1, 1));
  EXPECT_EQ(json["num_alloc_retries"], 0);
  EXPECT_EQ(json["num_ooms"], 0);
  EXPECT_EQ(json["num_device_alloc"], 1);
  EXPECT_EQ(json["num_device_free"], 0);
  EXPECT_EQ(json["num_sync_all_streams"], 0);
  EXPECT_EQ(json["oom_events"], Json::array());
  EXPECT_GT(json["events_per_s"].get<double>(), 0);
  EXPECT_EQ(json["capacity_bytes"], nullptr) << "unlimited";
  EXPECT_EQ(json["events"], 2);
}

TEST_F(Trace, ReplayCountsRefusedEventsFrom0WithoutComments) {
  const Json json = replay(kTwoInTheMiddle, {"--capacity", "40MiB", "--json"}).json();
  EXPECT_EQ(json["oom_events"], Json({6}));
  EXPECT_EQ(json["num_ooms"], 1);
  EXPECT_EQ(json["capacity_bytes"], 40 << 20);
  EXPECT_THAT(json["first_oom"].get<std::string>(),
              HasSubstr("CUDA out of memory. Tried to allocate 18.00 MiB."));
}

TEST_F(Trace, ReplayTakesSettingsCapacityAndFraction) {
  const auto refused = [&](const Arguments& more) {
    Arguments arguments = more;
    arguments.push_back("--json");
    return replay(kTwoInTheMiddle, arguments).json()["oom_events"].size();
  };
  EXPECT_EQ(refused({"--capacity", "40MiB", "--allocator", "expandable_segments:True"}), 0U);
  EXPECT_EQ(refused({"--capacity", "58MiB"}), 0U);
  EXPECT_EQ(refused({"--capacity", "80MiB", "--fraction", "0.5"}), 1U);
  EXPECT_EQ(refused({"--capacity", "RTX 4090"}), 0U);
}

// The total that CUDA reports: a little less than the 24 GiB on the package.
TEST_F(Trace, ReplayKnowsCardsByName) {
  const Json json = replay("a 1 5\n", {"--capacity", "RTX 4090", "--json"}).json();
  EXPECT_GT(json["capacity_bytes"], std::int64_t{23} << 30);
  EXPECT_LT(json["capacity_bytes"], std::int64_t{24} << 30);
}

TEST_F(Trace, ReplayReadsStandardInput) {
  const Outcome outcome = world_.run(
      {"sh", "-c",
       "printf 'a 1 3000000\\n' | '" + std::string(HEADROOM_BINARY) + "' trace replay - --json"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.json()["allocated"]["current"], 3'000'320);
}

TEST_F(Trace, ReplayReadsAHeadroomTrace) {
  const std::string path = world_.path("run.hrtrace");
  write_trace(path, {alloc(0x7f0000000000, Bytes{3'000'000}), free_requested(0x7f0000000000),
                     free_completed(0x7f0000000000)});
  const Json json = world_.headroom({"trace", "replay", path, "--json"}).json();
  EXPECT_EQ(json["format"], "headroom");
  EXPECT_EQ(json["events"], 3);
  EXPECT_EQ(json["allocated"]["peak"], 3'000'320);
  EXPECT_EQ(json["allocated"]["current"], 0);
}

TEST_F(Trace, ReplayPrintsTheResultAndTheNextCommand) {
  const Outcome outcome = replay(kTwoInTheMiddle, {"--capacity", "40MiB"});
  EXPECT_EQ(outcome.exit_code, 0) << "that it does not fit is an answer";
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("7 events; PyTorch's defaults, on a card of 40.0 MiB"),
                    HasSubstr("1 request refused, the first in event 6:"),
                    HasSubstr("CUDA out of memory."), HasSubstr("--capacity 40MiB --compare")));
}

TEST_F(Trace, ReplayWarnsOfOtherDevices) {
  const std::string path = world_.path("two.hrtrace");
  write_trace(path, {on_device(1, alloc(1, Bytes{3'000'000})), alloc(1, Bytes{512})});
  const Outcome outcome = world_.headroom({"trace", "replay", path, "--json"});
  EXPECT_THAT(outcome.err, HasSubstr("events of 2 devices; these are of device 1"));
  EXPECT_EQ(outcome.json()["allocated"]["peak"], 3'000'320);
  const Outcome other = world_.headroom({"trace", "replay", path, "--json", "--device", "0"});
  EXPECT_EQ(other.err, "");
  EXPECT_EQ(other.json()["allocated"]["peak"], 512);
}

TEST_F(Trace, ReplayQuotesTheNextCommand) {
  const std::string path = file(kTwoInTheMiddle, "Tom's run.txt");
  const std::string out = world_.headroom({"trace", "replay", path, "--capacity", "40 MiB"}).out;
  EXPECT_THAT(out, HasSubstr("Tom'\\''s run.txt' --capacity '40 MiB' --compare"));
}

TEST_F(Trace, ReplaySaysOnWhatCardItWasRecordedIfNoneIsGiven) {
  const std::string path = world_.path("run.hrtrace");
  write_trace(path, {alloc(1, Bytes{3'000'000})}, {.capacity = Bytes{std::int64_t{24} << 30}});
  const auto out = [&](Arguments more) {
    more.insert(more.begin(), {"trace", "replay", path});
    return world_.headroom(more).out;
  };
  EXPECT_THAT(out({}), HasSubstr("a card without a limit, recorded on a card of 24.00 GiB\n"));
  EXPECT_THAT(out({"--capacity", "8GiB"}), Not(HasSubstr("recorded")));
  EXPECT_EQ(Json::parse(out({"--json"}))["recorded_capacity_bytes"], std::int64_t{24} << 30);
  EXPECT_EQ(replay("a 1 5\n", {"--json"}).json()["recorded_capacity_bytes"], nullptr);
}

// A segment of 20 MiB leaves 10 of 30 MiB: a second one is refused, and the snapshot records that.
TEST_F(Trace, ReplaySaysWhatWasRefusedWhenItWasRecorded) {
  const std::string out = world_.path("s.pickle");
  const Outcome made = world_.headroom({"trace", "snapshot", file("a 1 20971520\na 2 20971520\n"),
                                        "--capacity", "30MiB", "--out", out});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const Outcome text = world_.headroom({"trace", "replay", out});
  EXPECT_THAT(text.out,
              HasSubstr("When it was recorded, 1 request was refused, the first in event "));
  EXPECT_THAT(text.out, HasSubstr(": 20.0 MiB,\nwith 10.0 MiB free on the card."));
  const Json json = world_.headroom({"trace", "replay", out, "--json"}).json();
  EXPECT_EQ(json["recorded_ooms"]["first_asked_bytes"], 20 << 20);
  EXPECT_EQ(json["num_ooms"], 0);
}

TEST_F(Trace, AnEmptyFileIsNotMistakenForATrace) {
  const Outcome outcome = replay("# nothing\n");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.err, HasSubstr("there are no events in "));
  EXPECT_THAT(outcome.out, Not(HasSubstr("--compare")));
  EXPECT_EQ(world_.headroom({"trace", "top", file("a 1 512\n")}).err, "");
}

// ---- what if ----

TEST_F(Trace, CompareSaysWhichSettingsWouldHaveAvoidedIt) {
  const Outcome outcome = replay(kTwoInTheMiddle, {"--capacity", "40MiB", "--compare"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out,
              HasSubstr("expandable_segments:True would have avoided the out-of-memory"));
}

TEST_F(Trace, SeveralSettingsAreComparedInOneDocument) {
  const Json json = replay(kTwoInTheMiddle,
                           {"--allocator", "", "--allocator", "expandable_segments:True", "--json"})
                        .json();
  ASSERT_EQ(json["what_if"].size(), 2U);
  EXPECT_EQ(json["reserved"], json["what_if"][0]["reserved"]) << "the first is the base";
  EXPECT_EQ(json["what_if"][0]["reserved"]["peak"], 58 << 20);
  EXPECT_EQ(json["what_if"][1]["settings"], "expandable_segments:True");
  EXPECT_EQ(json["what_if"][1]["reserved"]["peak"], 40 << 20);
  EXPECT_EQ(json["best"], 1);
  EXPECT_THAT(json["verdict"].get<std::string>(), HasSubstr("saved 18.0 MiB"));
}

TEST_F(Trace, FindsTheSmallestCard) {
  const Outcome outcome = replay(kTwoInTheMiddle, {"--smallest-capacity"});
  EXPECT_THAT(outcome.out, HasSubstr("The smallest card that refuses no request: 58.0 MiB"));
  const Json json = replay(kTwoInTheMiddle, {"--smallest-capacity", "--json"}).json();
  EXPECT_EQ(json["smallest_capacity"]["bytes"], 58 << 20);
  EXPECT_EQ(json["smallest_capacity"]["step_bytes"], 2 << 20);
}

// ---- top ----

TEST_F(Trace, TopListsTheBiggestAtThePeak) {
  const Outcome outcome =
      world_.headroom({"trace", "top", file("a 1 1048576\na 2 3145728\nf 2\nf 1\n")});
  EXPECT_EQ(outcome.exit_code, 0);
  const auto lines = lines_of(outcome.out);
  ASSERT_EQ(lines.size(), 5U) << outcome.out;
  EXPECT_THAT(lines[0], HasSubstr("4.0 MiB live in 2 tensors after event 1 of 4, the peak"));
  EXPECT_THAT(lines[3], AllOf(HasSubstr("3.0 MiB"), HasSubstr("75.0 %")));
}

TEST_F(Trace, TopJsonHasTensorsAndSums) {
  const Json json = world_
                        .headroom({"trace", "top", file("a 1 1048576\na 2 3145728\nf 2\n"),
                                   "--json", "--at", "end"})
                        .json();
  EXPECT_EQ(json["at"], (Json{{"event", 2}, {"live_bytes", 1 << 20}}));
  ASSERT_EQ(json["tensors"].size(), 1U);
  EXPECT_EQ(json["tensors"][0]["bytes"], 1 << 20);
  EXPECT_EQ(json["tensors"][0]["module"], nullptr);
  EXPECT_EQ(json["by_category"][0]["tensors"], 1);
}

// ---- What is wrong ----

struct Wrong {
  Arguments arguments;
  int exit_code;
  std::string says;
};
class TraceRefuses : public ::testing::TestWithParam<Wrong> {};

TEST_P(TraceRefuses, WithASentence) {
  const World world;
  world.folder().write("good.txt", "a 1 512\n");
  world.folder().write("twice.txt", "a 1 512\na 1 512\n");
  world.folder().write("nonsense.txt", "a 1 512\nhello\n");
  world.folder().write("bytes.bin", std::string("\x01\x02\x03\x04\x05\x06\x07", 7));
  Arguments arguments{"trace"};
  for (const std::string& word : GetParam().arguments)
    arguments.push_back(word.find('.') != std::string::npos ? world.path(word) : word);
  const Outcome outcome = world.headroom(arguments);
  EXPECT_EQ(outcome.exit_code, GetParam().exit_code) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(lines_of(outcome.err).size(), 1U) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr(GetParam().says));
}

INSTANTIATE_TEST_SUITE_P(
    Input, TraceRefuses,
    ::testing::Values(
        Wrong{{}, 64, "trace: expected one of replay, snapshot"},
        Wrong{{"reply"}, 64, "did you mean 'replay'?"}, Wrong{{"replay"}, 64, "FILE is required"},
        Wrong{{"replay", "none.txt"}, 65, "No such file"},
        Wrong{{"replay", "nonsense.txt"}, 65, "line 2"},
        Wrong{{"replay", "twice.txt"}, 65, "event 1"},
        Wrong{{"replay", "bytes.bin"}, 65, "expected a Headroom trace"},
        Wrong{{"replay", "good.txt", "--capcity", "1"}, 64, "did you mean '--capacity'?"},
        Wrong{{"replay", "good.txt", "--capacity", "RTX 409O"}, 64, "RTX 4090"},
        Wrong{{"replay", "good.txt", "--capacity", "0"}, 64, "capacity of at least one byte"},
        Wrong{{"replay", "good.txt", "--fraction", "2"}, 64, "a fraction from 0 to 1"},
        Wrong{{"replay", "good.txt", "--allocator", "max_splt:3"}, 64, "max_split_size_mb"},
        Wrong{{"replay", "good.txt", "--addresses", "random"}, 64, "ascending, descending"},
        Wrong{{"replay", "good.txt", "--device", "4"}, 64, "expected a device of"},
        Wrong{{"snapshot", "good.txt"}, 64, "--out is required"},
        Wrong{{"chrome", "none.txt", "--out", "-"}, 65, "No such file"},
        Wrong{{"top", "good.txt", "--at", "noon"}, 64, "peak, end or the number"},
        Wrong{{"top", "good.txt", "--at", "7"}, 64, "an event below 1"},
        Wrong{{"top", "good.txt", "--by", "colour"}, 64, "size, module, line, operation"}));

}  // namespace
}  // namespace headroom::testing
