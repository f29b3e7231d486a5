// `headroom log`: samples that other programs read, whatever the driver and the disk do meanwhile.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

#include "headroom/base/file.h"
#include "headroom/base/text.h"
#include "tests/cli/headroom_process.h"

namespace headroom::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

constexpr const char* kHeader =
    "timestamp,index,name,utilization.gpu [%],utilization.memory [%],memory.used [MiB],"
    "memory.free [MiB]";

Arguments log_quickly(const Arguments& more) {
  Arguments command{"log", "--interval", "50ms"};
  command.insert(command.end(), more.begin(), more.end());
  return command;
}

Json one_card() {
  Json json = card("24GiB", {process(::getpid(), "10GiB")});
  json["utilization"] = 37;
  return machine({json});
}

// ---- Formats ----

TEST(Log, WritesTheContractsCsv) {
  World world;
  world.driver(one_card());
  const Outcome outcome = world.headroom(log_quickly({"--count", "3"}));
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.err, "");
  const auto lines = lines_of(outcome.out);
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_EQ(lines[0], kHeader);
  for (std::size_t i = 1; i < lines.size(); ++i)
    EXPECT_TRUE(lines[i].ends_with(",0,NVIDIA GeForce RTX 4090,37,0,10240,14336")) << lines[i];
}

TEST(Log, WritesOneLineAProcess) {
  World world;
  world.driver(one_card());
  const auto lines = lines_of(world.headroom(log_quickly({"--count", "1", "--processes"})).out);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0], std::string(kHeader) + ",pid,process,process.used [MiB]");
  EXPECT_TRUE(lines[1].ends_with(",10240")) << lines[1];
  const std::string pid = pids_are_ours() ? std::to_string(::getpid()) : "";
  EXPECT_THAT(lines[1], HasSubstr("," + pid + ","));
}

TEST(Log, WritesOneGpusDocumentASample) {
  World world;
  world.driver(one_card());
  const Outcome outcome = world.headroom(log_quickly({"--count", "2", "--format", "ndjson"}));
  EXPECT_EQ(outcome.err, "");
  const auto lines = lines_of(outcome.out);
  ASSERT_EQ(lines.size(), 2U);
  for (const std::string& line : lines) {
    const Json json = Json::parse(line);
    EXPECT_TRUE(json["timestamp"].get<std::string>().ends_with("Z")) << line;
    EXPECT_EQ(json["schema"], 1);
    EXPECT_EQ(json["gpus"][0]["used_bytes"], 10737418240);
    EXPECT_EQ(json["gpus"][0]["processes"].size(), 1U);
  }
  EXPECT_LT(Json::parse(lines[0])["timestamp"], Json::parse(lines[1])["timestamp"]);
}

TEST(Log, WritesOnePrometheusStateOverTheLast) {
  World world;
  world.driver(one_card());
  const std::string path = world.path("headroom.prom");
  const Outcome outcome =
      world.headroom(log_quickly({"--count", "3", "--format", "prometheus", "--out", path}));
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.out, "");
  const std::string text = read_file(path).value_or("");
  EXPECT_THAT(text, HasSubstr("# TYPE headroom_gpu_memory_used_bytes gauge\n"
                              "headroom_gpu_memory_used_bytes{index=\"0\",uuid=\"GPU-"));
  EXPECT_EQ(text.find("# TYPE headroom_gpu_memory_used_bytes"),
            text.rfind("# TYPE headroom_gpu_memory_used_bytes"));
}

TEST(Log, WithoutADriverIsAWarningAndNoError) {
  const World world;
  const Outcome csv = world.headroom(log_quickly({"--count", "2"}));
  EXPECT_EQ(csv.exit_code, 0);
  EXPECT_EQ(csv.out, std::string(kHeader) + "\n");
  EXPECT_EQ(lines_of(csv.err).size(), 1U) << "said once: " << csv.err;
  const Outcome ndjson = world.headroom(log_quickly({"--count", "1", "--format", "ndjson"}));
  EXPECT_EQ(ndjson.exit_code, 0);
  EXPECT_TRUE(ndjson.json()["driver"].is_null());
  EXPECT_EQ(ndjson.json()["gpus"], Json::array());
}

// ---- Files ----

TEST(Log, AppendsToAFileWithoutASecondHeader) {
  World world;
  world.driver(one_card());
  const std::string path = world.path("gpus.csv");
  for (int run = 0; run < 2; ++run)
    EXPECT_EQ(world.headroom(log_quickly({"--count", "2", "--out", path})).exit_code, 0);
  const auto lines = lines_of(read_file(path).value_or(""));
  EXPECT_EQ(lines.size(), 5U);
  EXPECT_EQ(std::count(lines.begin(), lines.end(), kHeader), 1);
}

TEST(Log, RotatesBySizeAndKeepsWhatIsAsked) {
  World world;
  world.driver(one_card());
  const Outcome outcome = world.headroom(log_quickly(
      {"--count", "16", "--out", world.path("log/gpus.csv"), "--rotate", "300", "--keep", "2"}));
  EXPECT_EQ(outcome.exit_code, 73) << "no folder is made";
  std::filesystem::create_directory(world.path("log"));
  EXPECT_EQ(world
                .headroom(log_quickly({"--count", "16", "--out", world.path("log/gpus.csv"),
                                       "--rotate", "300", "--keep", "2"}))
                .exit_code,
            0);
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(world.path("log"))) {
    names.push_back(entry.path().filename());
    const auto lines = lines_of(read_file(entry.path()).value_or(""));
    EXPECT_EQ(lines[0], kHeader);
    EXPECT_LE(std::filesystem::file_size(entry.path()), 300U);
  }
  EXPECT_THAT(names, UnorderedElementsAre("gpus.csv", "gpus.csv.1", "gpus.csv.2"));
}

TEST(Log, EndsWhenItCannotWrite) {
  World world;
  world.driver(one_card());
  const Outcome file = world.headroom(log_quickly({"--out", "/dev/full"}));
  EXPECT_EQ(file.exit_code, 73);
  EXPECT_THAT(file.err, HasSubstr("cannot write /dev/full: No space left on device"));
  world.standard_output("/dev/full");
  EXPECT_EQ(world.headroom(log_quickly({})).exit_code, 73);
}

// ---- The end ----

TEST(Log, EndsWithASignalAndWholeLines) {
  for (const auto& [signal, code] :
       {std::pair(SIGINT, 130), std::pair(SIGTERM, 143), std::pair(SIGHUP, 129)}) {
    World world;
    world.driver(one_card());
    const auto log = world.start(log_quickly({}));
    ASSERT_TRUE(log->until([](const Running& r) { return lines_of(r.out()).size() >= 3; }));
    log->signal(signal);
    const Outcome outcome = log->wait();
    EXPECT_EQ(outcome.exit_code, code);
    EXPECT_TRUE(outcome.out.ends_with("14336\n")) << outcome.out;
  }
}

TEST(Log, EndsQuietlyWhenItsReaderDoes) {
  World world;
  world.driver(one_card());
  const Outcome outcome =
      world.run({"sh", "-c", std::string(HEADROOM_BINARY) + " log --interval 50ms | head -n 2"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(lines_of(outcome.out).size(), 2U);
  EXPECT_THAT(outcome.err, Not(HasSubstr("bug")));
}

// ---- A driver that is slow or hangs ----

TEST(Log, GoesOnAndMarksTheRowsOfACardThatHangs) {
  World world;
  Json fault = hang("nvmlDeviceGetMemoryInfo*", 2);
  fault["card"] = 0;
  world.driver(machine({card("24GiB"), card("80GiB")}, {fault}));
  const auto log = world.start({"log", "--interval", "200ms"});
  const bool marked = log->until([](const Running& r) {
    return r.out().find(",0,NVIDIA GeForce RTX 4090,,,,\n") != std::string::npos;
  });
  ASSERT_TRUE(marked) << log->out();
  EXPECT_TRUE(log->until_err_has("GPU 0: the driver does not answer"));
  log->signal(SIGTERM);
  const Outcome outcome = log->wait();
  EXPECT_EQ(outcome.exit_code, 143);
  const auto lines = lines_of(outcome.out);
  EXPECT_TRUE(lines[1].ends_with(",0,0,0,24576")) << lines[1];
  EXPECT_TRUE(lines.back().ends_with(",1,NVIDIA GeForce RTX 4090,0,0,0,81920")) << lines.back();
}

TEST(Log, GoesOnWhileTheDriverDoesNotEvenOpen) {
  World world;
  world.driver(machine({card("24GiB")}, {hang("nvmlInit*")}));
  const Outcome outcome = world.headroom(log_quickly({"--count", "3", "--gpus", "0"}));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(lines_of(outcome.out).at(0), kHeader);
  EXPECT_THAT(outcome.err, HasSubstr("has not answered"));
}

// With an interval beyond 2 s a sample of the last round was all there was when the driver took a
// moment to answer: too old, and the row was empty.
TEST(Log, HasFreshFiguresAtALongInterval) {
  World world;
  world.driver(machine({card("24GiB")}, {{{"function", "nvmlDeviceGetMemoryInfo*"},
                                          {"after", 1},
                                          {"times", 1},
                                          {"do", "hang:0.3"}}}));
  const auto lines = lines_of(world.headroom({"log", "--interval", "2.1s", "--count", "2"}).out);
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_TRUE(lines[2].ends_with(",0,0,0,24576")) << lines[2];
}

// ---- Bad input ----

class LogRefuses : public ::testing::TestWithParam<std::pair<Arguments, std::string>> {};

TEST_P(LogRefuses, WithASentenceAndWithoutMakingTheFile) {
  World world;
  world.driver(one_card());
  const std::string path = world.path("gpus.csv");
  Arguments command{"log", "--out", path};
  command.insert(command.end(), GetParam().first.begin(), GetParam().first.end());
  const Outcome outcome = world.headroom(command);
  EXPECT_EQ(outcome.exit_code, 64);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, HasSubstr(GetParam().second));
  EXPECT_FALSE(std::filesystem::exists(path));
}

INSTANTIATE_TEST_SUITE_P(
    Input, LogRefuses,
    ::testing::Values(std::pair(Arguments{"--format", "xml"}, "expected csv, ndjson or prometheus"),
                      std::pair(Arguments{"--interval", "1ms"}, "at least 50ms"),
                      std::pair(Arguments{"--interval", "soon"}, "expected a time"),
                      std::pair(Arguments{"--count", "-1"}, "0: until Ctrl-C"),
                      std::pair(Arguments{"--rotate", "10 apples"}, "expected a size"),
                      std::pair(Arguments{"--keep", "-1"}, "--keep"),
                      std::pair(Arguments{"--rotate", "1MiB", "--format", "prometheus"},
                                "no rotation"),
                      std::pair(Arguments{"--gpus", "7"}, "expected a GPU of this machine"),
                      std::pair(Arguments{"--gpus", "sim:1xRTX 409O"}, "RTX 4090")));

TEST(Log, RotatesOnlyAFile) {
  const World world;
  const Outcome outcome = world.headroom({"log", "--count", "1", "--rotate", "1MiB"});
  EXPECT_EQ(outcome.exit_code, 64);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, HasSubstr("a file to rotate (--out)"));
}

}  // namespace
}  // namespace headroom::testing
