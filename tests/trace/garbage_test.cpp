// The corpus of the fuzzer and seeded mutations of it (tests/fuzz/README.md). What is not
// InputError, or is found by a sanitizer, is a fault.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <random>

#include "headroom/base/file.h"
#include "tests/fuzz/read_everything.h"
#include "tests/support/garbage.h"

namespace headroom::trace {
namespace {

namespace fs = std::filesystem;
using fuzz::read_everything;
using fuzz::use_everything;
using testing::mutated;

std::map<std::string, std::string> corpus() {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(HEADROOM_FUZZ_CORPUS))
    files[entry.path().filename()] = read_input(entry.path());
  return files;
}

TEST(Readers, ReadTheCorpusOfTheFuzzer) {
  const auto files = corpus();
  ASSERT_GE(files.size(), 15U);
  EXPECT_EQ(read_everything(files.at("events.txt")), 14);
  EXPECT_EQ(read_everything(files.at("windows.txt")), 2);
  EXPECT_EQ(read_everything(files.at("wrong.txt")), 1);
  EXPECT_EQ(read_everything(files.at("whole.hrtrace")), 34);
  EXPECT_EQ(read_everything(files.at("zeros-at-the-end.hrtrace")), 34);
  EXPECT_EQ(read_everything(files.at("cut-in-a-part.hrtrace")), 20);
  EXPECT_EQ(read_everything(files.at("cut-in-the-head.hrtrace")), 0);
  EXPECT_EQ(read_everything(files.at("inside-of-a-part")), 34);
  const int events = read_everything(files.at("protocol-2.pickle"));
  EXPECT_GE(events, 6);
  for (const char* protocol : {"3", "4", "5"})
    EXPECT_EQ(read_everything(files.at(std::string("protocol-") + protocol + ".pickle")), events);
  EXPECT_EQ(read_everything(files.at("calls.pickle")), 0);
  EXPECT_EQ(read_everything(files.at("calls-protocol-2.pickle")), 0);
}

TEST(Readers, GiveWhatCanBePlayed) {
  const auto files = corpus();
  EXPECT_EQ(use_everything(files.at("windows.txt")), 2U);
  EXPECT_GE(use_everything(files.at("protocol-2.pickle")), 3U);
}

TEST(Readers, EndGarbageInAnInputErrorAndNothingElse) {
  const auto files = corpus();
  std::mt19937 random(20'251);
  for (const auto& [name, bytes] : files) {
    for (int i = 0; i < 400; ++i) {
      const auto other = std::next(files.begin(), static_cast<int>(random() % files.size()));
      const std::string garbage = mutated(bytes, other->second, random);
      ASSERT_NO_THROW(read_everything(garbage)) << name << " " << i;
      ASSERT_NO_THROW(use_everything(garbage)) << name << " " << i;
    }
  }
}

TEST(Readers, EndEveryCutOfTheCorpusInAnInputErrorAndNothingElse) {
  for (const auto& [name, bytes] : corpus())
    for (std::size_t cut = 0; cut < bytes.size(); ++cut)
      ASSERT_NO_THROW(read_everything(std::string_view(bytes).substr(0, cut)))
          << name << " " << cut;
}

}  // namespace
}  // namespace headroom::trace
