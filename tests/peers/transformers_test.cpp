// Headroom's peaks of published models under the CPU's rules beside those that PyTorch's MemTracker
// and a plain count give for the same model, batch and settings in transformers 4.57.6
// (transformers_peaks.py; `make peers` runs it and stores what it says in
// transformers_figures.json).
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "headroom/base/file.h"
#include "headroom/base/json.h"
#include "headroom/dryrun/dry_run.h"
#include "headroom/estimate/training_step.h"
#include "headroom/formula/model_config.h"

namespace headroom {
namespace {

constexpr double kTolerance = 0.001;
const std::string kFolder = HEADROOM_SOURCE_DIR "/tests/peers/";

// Where a judge with fake tensors under a dispatch mode differs from the CPU itself, and why. At
// most three. Each must be Headroom's figure once that one thing is put right: "real_512" in the
// figures, RealCount in plain_count.py.
const std::map<std::string, std::string>& exceptions() {
  static const std::map<std::string, std::string> named = {};
  return named;
}

// ---- The cases and what is stored of them ----

struct Case {
  std::string name;
  std::string config;
  formula::Settings settings;
};

void PrintTo(const Case& of, std::ostream* out) {
  *out << of.name;
}

Json read(const std::string& file) {
  return parse_json(read_input(kFolder + file), file);
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Json& one : read("transformers_cases.json").at("cases"))
    all.push_back({one.at("name").get<std::string>(), one.at("config").get<std::string>(),
                   formula::settings_from_json(one.at("settings"))});
  return all;
}

formula::ModelConfig config_of(const Case& of) {
  return formula::read_config(kFolder + "configs/" + of.config + ".json");
}

const Json& figures() {
  static const Json document = read("transformers_figures.json");
  return document;
}

// A judge's highest count of bytes in each phase.
struct Phases {
  std::map<std::string, double> bytes;

  [[nodiscard]] std::string highest() const {
    return std::max_element(
               bytes.begin(), bytes.end(),
               [](const auto& one, const auto& other) { return one.second < other.second; })
        ->first;
  }
  [[nodiscard]] double peak() const { return bytes.at(highest()); }
};

Phases phases_of(const Case& of, const char* judge) {
  Phases phases;
  for (const auto& [phase, bytes] : figures().at("peak_bytes").at(of.name).at(judge).items())
    phases.bytes[phase] = bytes.get<double>();
  return phases;
}

double off(double ours, double theirs) {
  return std::abs(ours / theirs - 1);
}

std::string name_of(trace::Phase phase) {
  switch (phase) {
    case trace::Phase::forward:
      return "forward";
    case trace::Phase::backward:
      return "backward";
    case trace::Phase::optimizer:
      return "optimizer";
    default:
      return "none of a step's";
  }
}

dryrun::Peak peak_of(const Case& of) {
  const auto make = [&](c10::Device device) {
    return estimate::training_step(config_of(of), of.settings, device).subject;
  };
  return dryrun::dry_run("unlimited", make, {.keep_trace = false},
                         {.rules = sim::Rules::cpu, .cublas_workspaces = false})
      .peak;
}

// ---- Ours beside theirs ----

class Transformers : public testing::TestWithParam<Case> {};

TEST_P(Transformers, PeakAndItsPhaseAreTheirs) {
  const bool excepted = exceptions().contains(GetParam().name);
  const Phases theirs = phases_of(GetParam(), excepted ? "real_512" : "plain_512");
  const dryrun::Peak ours = peak_of(GetParam());
  const auto bytes = static_cast<double>(ours.active.count);
  RecordProperty("off", std::to_string(bytes / theirs.peak() - 1));
  EXPECT_LE(off(bytes, theirs.peak()), kTolerance)
      << "ours " << ours.active.count << ", theirs " << static_cast<std::int64_t>(theirs.peak());
  const std::string phase = name_of(ours.phase);
  ASSERT_TRUE(theirs.bytes.contains(phase)) << phase;
  EXPECT_LE(off(theirs.bytes.at(phase), theirs.peak()), kTolerance)
      << "ours is in " << phase << ", theirs in " << theirs.highest();
  if (!excepted) return;
  EXPECT_GT(off(bytes, phases_of(GetParam(), "plain_512").peak()), kTolerance)
      << "no exception any more";
}

INSTANTIATE_TEST_SUITE_P(Models, Transformers, testing::ValuesIn(cases()),
                         [](const auto& instance) { return instance.param.name; });

TEST(TransformersFigures, HaveThreeExceptionsAtMost) {
  EXPECT_LE(exceptions().size(), 3);
}

TEST(TransformersFigures, AreOfTheCasesThatThereAre) {
  std::set<std::string> stored, built;
  for (const auto& [name, peaks] : figures().at("peak_bytes").items()) stored.insert(name);
  for (const Case& of : cases()) built.insert(of.name);
  EXPECT_EQ(stored, built) << "run `make peers`";
}

TEST(TransformersFigures, AreOfEveryModelTypeThatIsBuilt) {
  std::set<std::string> types;
  for (const Case& of : cases()) types.insert(config_of(of).type());
  EXPECT_THAT(formula::model_types(), testing::UnorderedElementsAreArray(types));
}

// MemTracker's raw bytes, and those of the plain count.
TEST(TransformersFigures, TwoJudgesAgree) {
  for (const auto& [name, peaks] : figures().at("peak_bytes").items())
    EXPECT_EQ(peaks.at("memtracker"), peaks.at("plain")) << name;
}

}  // namespace
}  // namespace headroom
