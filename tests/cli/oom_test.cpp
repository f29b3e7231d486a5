// `headroom oom classify` as a person or a script runs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/cli/headroom_process.h"

namespace headroom::testing {
namespace {

using ::testing::HasSubstr;

constexpr const char* kLog =
    "step 1 loss 0.5\n"
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total "
    "capacity of 24.00 GiB of which 1.00 GiB is free.\n";

Outcome classify(const World& world, const std::string& log, const std::string& options = {}) {
  std::ofstream(world.path("log"), std::ios::binary) << log;
  return world.run({"bash", "-c",
                    std::string("\"") + HEADROOM_BINARY + "\" oom classify " + options + " < '" +
                        world.path("log") + "'"});
}

TEST(OomClassify, DocumentHasTheKeysOfTheContract) {
  const World world;
  const Outcome outcome = classify(world, kLog, "--json");
  EXPECT_EQ(outcome.exit_code, 0);
  const Json json = outcome.json();
  std::vector<std::string> keys;
  for (const auto& item : json.items()) keys.push_back(item.key());
  EXPECT_THAT(keys, ::testing::ElementsAre("verdict", "kind", "confidence", "evidence",
                                           "asked_bytes", "total_bytes", "free_bytes", "device"));
  EXPECT_EQ(json["verdict"], "gpu_oom");
  EXPECT_EQ(json["kind"], "cuda_caching_allocator");
  EXPECT_EQ(json["asked_bytes"], 2147483648);
  EXPECT_EQ(json["total_bytes"], 25769803776);
  EXPECT_EQ(json["free_bytes"], 1073741824);
  EXPECT_EQ(json["device"], 1);
  EXPECT_THAT(json["evidence"].get<std::string>(), ::testing::StartsWith("torch.OutOfMemoryError"));
}

TEST(OomClassify, TellsAPersonVerdictEvidenceAndFigures) {
  const World world;
  const Outcome outcome = classify(world, kLog);
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, HasSubstr("gpu_oom: out of the card's memory (98 % sure)"));
  EXPECT_THAT(outcome.out, HasSubstr("evidence  torch.OutOfMemoryError"));
  EXPECT_THAT(outcome.out, HasSubstr("requested 2.00 GiB; free 1.00 GiB, total 24.00 GiB"));
}

TEST(OomClassify, EmptyAndBinaryInputAreAnswered) {
  const World world;
  EXPECT_EQ(classify(world, "", "--json").json()["verdict"], "unknown");
  EXPECT_EQ(classify(world, "", "--exit-code 137 --json").json()["verdict"], "unknown");
  EXPECT_EQ(classify(world, "", "--signal 11 --json").json()["verdict"], "not_oom");
  EXPECT_EQ(classify(world, std::string("\0\xff\x1b[\x01", 5), "--json").json()["verdict"],
            "unknown");
}

TEST(OomClassify, FindsTheEndOfAHugeLog) {
  const World world;
  std::string log;
  for (int i = 0; i < 400000; ++i) log += "downloading shard number " + std::to_string(i) + "\n";
  EXPECT_EQ(classify(world, log + kLog, "--json").json()["verdict"], "gpu_oom");
}

TEST(OomClassify, WrongUseIsExplained) {
  const World world;
  Outcome outcome = classify(world, "", "--exit-code lots");
  EXPECT_EQ(outcome.exit_code, 64);
  EXPECT_THAT(outcome.err, HasSubstr("a number from -255 to 4294967295"));
  outcome = classify(world, "", "--exit-cod 1");
  EXPECT_EQ(outcome.exit_code, 64);
  EXPECT_THAT(outcome.err, HasSubstr("did you mean '--exit-code'?"));
  EXPECT_EQ(world.headroom({"oom"}).exit_code, 64);
}

TEST(OomClassify, HelpHasExamples) {
  const World world;
  const Outcome outcome = world.headroom({"oom", "classify", "--help"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, HasSubstr("headroom oom classify train.log"));
}

// A pipe that stays open and says nothing.
TEST(OomClassify, CanBeInterruptedWhileNothingComes) {
  const World world;
  const auto running = world.start_program({"bash", "-c",
                                            "mkfifo '" + world.path("pipe") + "' && exec \"" +
                                                std::string(HEADROOM_BINARY) +
                                                "\" oom classify <>'" + world.path("pipe") + "'"});
  // It waits as soon as its watcher of signals and its reader run.
  const std::filesystem::path threads = "/proc/" + std::to_string(running->pid()) + "/task";
  ASSERT_TRUE(running->until([&](const Running&) {
    std::error_code error;
    const std::filesystem::directory_iterator found(threads, error);
    return !error && std::distance(begin(found), end(found)) >= 3;
  }));
  running->signal(SIGINT);
  EXPECT_EQ(running->wait().exit_code, 130);
}

TEST(OomClassify, ReadsAFileThatIsNamed) {
  const World world;
  std::ofstream(world.path("log"), std::ios::binary) << kLog;
  const Outcome named = world.headroom({"oom", "classify", world.path("log")});
  EXPECT_EQ(named.exit_code, 0);
  EXPECT_EQ(named.out, classify(world, kLog).out);
  const Outcome missing = world.headroom({"oom", "classify", world.path("nothing")});
  EXPECT_EQ(missing.exit_code, 65);
  EXPECT_THAT(missing.err, HasSubstr("No such file"));
  EXPECT_EQ(world.headroom({"oom", "classify", world.path("")}).exit_code, 65) << "a folder";
}

}  // namespace
}  // namespace headroom::testing
