// `headroom trace snapshot` and `headroom trace chrome`: files for viewers.
#include <gmock/gmock.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>

#include "headroom/base/file.h"
#include "headroom/trace/plain_reader.h"
#include "tests/cli/trace_world.h"

namespace headroom::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using TraceExport = Trace;

TEST_F(TraceExport, AnExportDoesNotReplaceTheTrace) {
  const std::string path = file(kTwoInTheMiddle);
  const Outcome outcome = world_.headroom({"trace", "chrome", path, "--out", path});
  EXPECT_EQ(outcome.exit_code, 64);
  EXPECT_THAT(outcome.err, HasSubstr("a file to write that the command does not read"));
  EXPECT_EQ(read_input(path), kTwoInTheMiddle);
}

// Replaying the snapshot gives the figures of the replay that wrote it.
TEST_F(TraceExport, SnapshotIsReadAgainWithTheSameFigures) {
  const std::string out = world_.path("out.pickle");
  const Outcome made = world_.headroom({"trace", "snapshot", file(kTwoInTheMiddle), "--out", out});
  EXPECT_EQ(made.exit_code, 0) << made.err;
  EXPECT_THAT(made.out, HasSubstr("memory_viz"));
  const Json again = world_.headroom({"trace", "replay", out, "--json"}).json();
  EXPECT_EQ(again["format"], "pickle");
  EXPECT_EQ(again["reserved"]["peak"], 58 << 20);
  EXPECT_EQ(again["allocated"], (Json{{"current", 36 << 20}, {"peak", 36 << 20}}));
}

TEST_F(TraceExport, SnapshotObeysSettingsAndCapacity) {
  const Outcome made =
      world_.headroom({"trace", "snapshot", file(kTwoInTheMiddle), "--out", world_.path("o.pickle"),
                       "--allocator", "expandable_segments:True", "--capacity", "40MiB"});
  EXPECT_THAT(made.out, HasSubstr("(expandable_segments:True); nothing refused"));
}

TEST_F(TraceExport, ReportIsAPageWithThePeaksOfTheReplay) {
  const std::string out = world_.path("out.html");
  const Outcome made = world_.headroom({"trace", "report", file(kTwoInTheMiddle), "--out", out});
  EXPECT_EQ(made.exit_code, 0) << made.err;
  EXPECT_THAT(made.out, HasSubstr("open the file in a browser"));
  const std::string page = read_input(out);
  EXPECT_NE(page.find("\"allocated_bytes\":" + std::to_string(36 << 20)), std::string::npos);
  EXPECT_NE(page.find("\"reserved_bytes\":" + std::to_string(58 << 20)), std::string::npos);
  EXPECT_EQ(page.find("http://"), page.find("http://www.w3.org")) << "names a namespace at most";
}

TEST_F(TraceExport, ATraceWithoutEventsIsNoPage) {
  const std::string out = world_.path("out.html"), empty = world_.path("empty.txt");
  write_file_atomically(empty, "");
  const Outcome made = world_.headroom({"trace", "report", empty, "--out", out});
  EXPECT_EQ(made.exit_code, 65);
  EXPECT_THAT(made.err, HasSubstr("a trace with events"));
  EXPECT_FALSE(std::filesystem::exists(out));
  const std::string full = file(kTwoInTheMiddle);
  EXPECT_EQ(world_.headroom({"trace", "diff", full, empty}).exit_code, 65);
}

TEST_F(TraceExport, DiffAddsUpAndWritesAPage) {
  const std::string a = file(kTwoInTheMiddle), b = world_.path("b.txt"),
                    out = world_.path("d.html");
  write_file_atomically(b, read_input(a) + "a 900 10485760\na 901 99614720\n");
  const Json json = world_.headroom({"trace", "diff", a, b, "--json", "--out", out}).json();
  std::int64_t sum = 0;
  for (const Json& part : json.at("parts")) sum += part.at("bytes").get<std::int64_t>();
  EXPECT_GT(sum, 0);
  EXPECT_EQ(sum, json.at("peak_difference_bytes").get<std::int64_t>());
  EXPECT_NE(read_input(out).find("id=\"diff\""), std::string::npos);
  EXPECT_EQ(world_.headroom({"trace", "diff", a, b, "--out", b}).exit_code, 64);
  EXPECT_EQ(world_.headroom({"trace", "diff", a, b, "--out", "-"}).exit_code, 64);
  EXPECT_THAT(world_.headroom({"trace", "diff", a, a}).out, HasSubstr("hold the same memory"));
  EXPECT_EQ(world_.headroom({"trace", "diff", a, b, "--step", "9"}).exit_code, 64);
}

std::int64_t highest(const Json& chrome, const std::string& track) {
  std::int64_t most = 0;
  for (const Json& event : chrome["traceEvents"])
    if (event["ph"] == "C" && event["name"] == track)
      most = std::max(most, event["args"]["bytes"].get<std::int64_t>());
  return most;
}

TEST_F(TraceExport, ChromeHasTheTracksOfTheReplay) {
  const Outcome made = world_.headroom({"trace", "chrome", file(kTwoInTheMiddle), "--out", "-"});
  EXPECT_EQ(made.exit_code, 0) << made.err;
  const Json chrome = Json::parse(made.out);
  EXPECT_EQ(highest(chrome, "reserved"), 58 << 20);
  EXPECT_EQ(highest(chrome, "allocated"), 36 << 20);
}

TEST_F(TraceExport, ChromeShowsWhatTheReplayRefuses) {
  const std::string text =
      world_
          .headroom({"trace", "chrome", file(kTwoInTheMiddle), "--out", "-", "--capacity", "40MiB"})
          .out;
  EXPECT_THAT(text, HasSubstr("out of memory: asked for 18.0 MiB"));
}

// The names of files in the folder that belong to `name`.
std::vector<std::string> left_of(const World& world, const std::string& name) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(world.folder().path()))
    if (entry.path().filename().string().starts_with(name))
      names.push_back(entry.path().filename());
  return names;
}

TEST_F(TraceExport, ExportLeavesTheOldFileWhenTheTraceIsBad) {
  const std::string out = world_.folder().write("out.json", "old");
  const Outcome made = world_.headroom({"trace", "chrome", file("a 1 5\nf 2\n"), "--out", out});
  EXPECT_EQ(made.exit_code, 65);
  EXPECT_EQ(read_file(out), "old");
  EXPECT_THAT(left_of(world_, "out.json"), ElementsAre("out.json"));
}

TEST_F(TraceExport, ExportThatCannotWriteIs73) {
  for (const char* command : {"snapshot", "chrome"}) {
    const Arguments arguments{"trace", command, file("a 1 5\n"), "--out", world_.path("no/folder")};
    EXPECT_EQ(world_.headroom(arguments).exit_code, 73);
  }
}

// A plain read would wait for the pipe, and Ctrl-C be kept from it.
TEST_F(TraceExport, ExportEndsWithCtrlCThoughItsInputIsSilent) {
  const std::string pipe = world_.path("pipe"), out = world_.path("out.pickle");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const auto running = world_.start({"trace", "snapshot", pipe, "--out", out});
  const int writer = ::open(pipe.c_str(), O_WRONLY | O_CLOEXEC);  // waits until it is read
  const std::string begin = "a 1 512\n#" + std::string(100, ' ') + "\n";
  EXPECT_EQ(::write(writer, begin.data(), begin.size()), static_cast<ssize_t>(begin.size()));
  EXPECT_TRUE(running->until([&](const Running&) { return !left_of(world_, "out.").empty(); }));
  running->signal(SIGINT);
  EXPECT_EQ(running->wait().exit_code, 130);
  ::close(writer);
  EXPECT_THAT(left_of(world_, "out."), IsEmpty());
}

// The writer of the pipe may never end.
TEST_F(TraceExport, ExportEndsAtAMistakeThoughItsInputGoesOn) {
  const std::string pipe = world_.path("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const auto running = world_.start({"trace", "snapshot", pipe, "--out", world_.path("x")});
  const int writer = ::open(pipe.c_str(), O_WRONLY | O_CLOEXEC);
  const std::string begin = "hello\n" + std::string(std::size_t{2} * trace::kLongestLine - 6, ' ');
  write_all(writer, begin, pipe);  // what the reader looks at
  EXPECT_EQ(running->wait().exit_code, 65);
  ::close(writer);
}

// Reading a folder fails; so does a disk. It once was the end of the trace, and the rest was lost.
TEST_F(TraceExport, ExportTellsAReadErrorFromTheEndOfItsInput) {
  for (const char* command : {"snapshot", "chrome"}) {
    const std::string out = world_.folder().write("out", "old");
    const Outcome outcome =
        world_.run({"sh", "-c",
                    "exec '" + std::string(HEADROOM_BINARY) + "' trace " + command + " - --out '" +
                        out + "' < '" + world_.path(".") + "'"});
    EXPECT_EQ(outcome.exit_code, 65);
    EXPECT_THAT(outcome.err, HasSubstr("cannot read standard input: Is a directory"));
    EXPECT_EQ(read_file(out), "old");
  }
}

}  // namespace
}  // namespace headroom::testing
