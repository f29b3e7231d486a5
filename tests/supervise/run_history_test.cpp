// The history file: whole lines, with other writers and on a full disk.

#include "headroom/supervise/run_history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/base/json.h"
#include "headroom/base/text.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/temporary_folder.h"

namespace headroom::supervise {
namespace {

using namespace literals;
using ::testing::HasSubstr;

class RunHistory : public ::testing::Test {
 protected:
  [[nodiscard]] std::string text() const { return read_file(file_).value_or("none"); }
  headroom::testing::TemporaryFolder folder_;
  std::filesystem::path file_ = folder_.path() / "h.ndjson";
};

TEST_F(RunHistory, ATryIsOneLineWithAllItsKeysInOrder) {
  const Try one{.number = 2,
                .started = WallTime(std::chrono::seconds(1)),
                .command = {"t", "a b"},
                .gpus = {"GPU-1"},
                .batch = 8,
                .accumulation = 2,
                .resumed_from = "c.pt",
                .end = {.exit_code = 1},
                .judgement = {.verdict = oom::Verdict::gpu_oom,
                              .kind = "cublas",
                              .evidence = "a \"line\"",
                              .asked = 5_B},
                .peak = 7_B};
  EXPECT_EQ(to_line(one),
            R"({"try":2,"started":"1970-01-01T00:00:01.000Z","ended":"1970-01-01T00:00:00.000Z",)"
            R"("exit_code":1,"signal":null,"verdict":"gpu_oom","kind":"cublas",)"
            R"("evidence":"a \"line\"","asked_bytes":5,"peak_bytes":7,"reported_bytes":null,)"
            R"("reported_plan":null,"gpus":["GPU-1"],"batch":8,)"
            R"("accumulation":2,"command":["t","a b"],"resumed_from":"c.pt"})");
  EXPECT_THAT(to_line(Try{}), HasSubstr(R"("signal":null,"verdict":"unknown","kind":null)"));
}

TEST_F(RunHistory, LinesAreAppended) {
  folder_.write("h.ndjson", "{\"try\":0}\n");
  History history(file_);
  EXPECT_EQ(history.append({}), std::nullopt);
  EXPECT_EQ(text(), "{\"try\":0}\n" + to_line(Try{}) + "\n");
}

TEST_F(RunHistory, AnIncompleteLastLineIsEndedFirst) {
  folder_.write("h.ndjson", "{\"try\":");
  History history(file_);
  EXPECT_EQ(history.append({}), std::nullopt);
  EXPECT_EQ(text(), "{\"try\":\n" + to_line(Try{}) + "\n");
}

TEST_F(RunHistory, ANewFileIsReadableForItsOwnerOnly) {
  const History history(file_);
  struct stat facts {};
  ASSERT_EQ(::stat(file_.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600U);
}

TEST_F(RunHistory, AnUnwritableFileThrowsAtOnce) {
  EXPECT_THROW(History(folder_.path() / "none" / "h"), WriteError);
  EXPECT_THROW(History{folder_.path()}, WriteError);
}

TEST_F(RunHistory, AFullDiskIsReportedAndLeavesNoHalfLine) {
  History history(file_);
  EXPECT_EQ(history.append({}), std::nullopt);
  const std::string before = text();
  {
    const headroom::testing::FileSizeLimit full(before.size() + 20);
    EXPECT_THAT(history.append({}).value_or(""), HasSubstr("cannot write " + file_.string()));
  }
  EXPECT_EQ(text(), before);
  EXPECT_EQ(history.append({}), std::nullopt);
}

TEST_F(RunHistory, RunsThatShareAFileNeverMixTheirLines) {
  constexpr int kRuns = 4, kLines = 50;
  for (int run = 0; run < kRuns; ++run) {
    if (::fork() != 0) continue;
    History history(file_);
    bool good = true;
    for (int i = 0; i < kLines; ++i)
      good = good && !history.append({.number = i, .command = {std::string(5000, 'x')}});
    ::_exit(good ? 0 : 1);
  }
  for (int run = 0; run < kRuns; ++run) {
    int status = 1;
    ::wait(&status);
    EXPECT_EQ(status, 0);
  }
  const std::string all = text();
  int lines = 0;
  for (const auto line : split(trim(all), '\n')) lines += parse_json(line, "line").contains("try");
  EXPECT_EQ(lines, kRuns * kLines);
}

}  // namespace
}  // namespace headroom::supervise
