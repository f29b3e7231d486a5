// Headroom's peaks under the CPU's rules beside those that PyTorch's MemTracker gives for the same
// nets in Python (`make peers` runs it and stores what it says in figures.json).
#include <gmock/gmock.h>

#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "tests/peers/measure.h"

namespace headroom::nets {
namespace {

constexpr double kTolerance = 0.001;

// Where the judges themselves are off, with what they say and why. At most three.
const std::map<std::string, std::string>& exceptions() {
  static const std::map<std::string, std::string> named = {
      // 829,255,304 at aten::add: under a dispatch mode autograd never sums gradients in place. The
      // next lower moment, convolution_backward, is 826,044,040: to the byte what Headroom says.
      {"resnet", "the judge does not sum gradients in place"},
  };
  return named;
}

const nlohmann::json& figures() {
  static const nlohmann::json document = [] {
    std::ifstream file(HEADROOM_SOURCE_DIR "/tests/peers/figures.json");
    return nlohmann::json::parse(file);
  }();
  return document;
}

class Stored : public testing::TestWithParam<Case> {};

TEST_P(Stored, ActivePeakIsPyTorchs) {
  const nlohmann::json& stored = figures().at("peak_bytes").at(GetParam().name);
  const double theirs = stored.at("memtracker");
  const auto ours = static_cast<double>(peak_bytes(GetParam(), sim::Rules::cpu));
  const double off = ours / theirs - 1;
  RecordProperty("off", std::to_string(off));
  if (exceptions().contains(GetParam().name))
    EXPECT_GT(std::abs(off), kTolerance) << "no exception any more: " << ours << " " << theirs;
  else
    EXPECT_LE(std::abs(off), kTolerance) << "ours " << static_cast<std::int64_t>(ours)
                                         << ", MemTracker's " << stored.at("memtracker");
}

INSTANTIATE_TEST_SUITE_P(Nets, Stored, testing::ValuesIn(cases()),
                         [](const auto& instance) { return instance.param.name; });

TEST(Figures, AreOfTheNetsThatThereAre) {
  std::set<std::string> stored, built;
  for (const auto& [name, peaks] : figures().at("peak_bytes").items()) stored.insert(name);
  for (const Case& of : cases()) built.insert(of.name);
  EXPECT_EQ(stored, built) << "run `make peers`";
}

TEST(Figures, TwoJudgesAgree) {
  for (const auto& [name, peaks] : figures().at("peak_bytes").items())
    EXPECT_EQ(peaks.at("memtracker"), peaks.at("plain")) << name;
}

TEST(Figures, HaveThreeExceptionsAtMost) {
  EXPECT_LE(exceptions().size(), 3);
}

}  // namespace
}  // namespace headroom::nets
