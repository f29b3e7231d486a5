#include "headroom/watch/prometheus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "headroom/base/text.h"
#include "tests/watch/machines.h"

namespace headroom::watch {
namespace {

using namespace headroom::literals;
using headroom::testing::kNow;
using headroom::testing::two_cards;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Not;

struct Sample {
  std::string name;
  std::map<std::string, std::string> labels;
  double value = 0;
};

// A reader of the text format (prometheus.io/docs/instrumenting/exposition_formats) that is as
// strict as Prometheus itself: one wrong line and nothing is taken.
class Reader {
 public:
  explicit Reader(const std::string& text) {
    for (const auto line : split(text, '\n')) read(line);
    EXPECT_TRUE(text.empty() || text.ends_with('\n'));
  }

  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const Sample& sample : samples) found.push_back(sample.name);
    return found;
  }
  [[nodiscard]] std::vector<Sample> named(const std::string& name) const {
    std::vector<Sample> found;
    for (const Sample& sample : samples)
      if (sample.name == name) found.push_back(sample);
    return found;
  }

  std::vector<Sample> samples;

 private:
  void read(std::string_view line) {
    if (line.empty()) return;
    if (line.starts_with("# HELP ")) {
      family_ = split(line.substr(7), ' ')[0];
      EXPECT_TRUE(families_.insert(family_).second) << "one block a family: " << line;
      typed_ = false;
    } else if (line.starts_with("# TYPE ")) {
      EXPECT_EQ(line, "# TYPE " + family_ + " gauge");
      typed_ = true;
    } else {
      EXPECT_TRUE(typed_) << "HELP and TYPE come first: " << line;
      samples.push_back(sample_of(line));
      EXPECT_EQ(samples.back().name, family_);
      EXPECT_TRUE(series_.insert(std::string(line.substr(0, line.rfind(' ')))).second)
          << "a series twice: " << line;
    }
  }

  static Sample sample_of(std::string_view line) {
    Sample sample;
    const std::size_t open = line.find('{');
    if (open == std::string_view::npos) {  // of the machine, without labels
      const std::size_t blank = line.find(' ');
      sample.name = line.substr(0, blank);
      sample.value = to_number(line.substr(blank + 1)).value();
      return sample;
    }
    sample.name = line.substr(0, open);
    std::size_t at = open + 1;
    while (at < line.size() && line[at] != '}') {
      const std::size_t equals = line.find("=\"", at);
      const std::string name(line.substr(at, equals - at));
      std::string value;
      for (at = equals + 2; at < line.size() && line[at] != '"'; ++at) {
        if (line[at] != '\\') {
          value += line[at];
          continue;
        }
        ++at;
        EXPECT_TRUE(line[at] == '\\' || line[at] == '"' || line[at] == 'n') << line;
        value += line[at] == 'n' ? '\n' : line[at];
      }
      EXPECT_TRUE(sample.labels.emplace(name, value).second) << line;
      ++at;
      if (at < line.size() && line[at] == ',') ++at;
    }
    const auto value = at + 2 <= line.size() ? to_number(line.substr(at + 2)) : std::nullopt;
    EXPECT_TRUE(value) << line;
    sample.value = value.value_or(0);
    return sample;
  }

  std::string family_;
  bool typed_ = false;
  std::set<std::string> families_, series_;
};

Reader read(const gpu::Machine& machine, bool processes = true) {
  return Reader(prometheus_text(machine, processes, kNow));
}

TEST(PrometheusText, GivesEveryKnownFigureInBaseUnits) {
  const Reader reader = read(two_cards(kNow));
  const std::map<std::string, double> expected{
      {"headroom_gpu_memory_total_bytes", 25769803776.0},
      {"headroom_gpu_memory_used_bytes", 10737418240.0},
      {"headroom_gpu_memory_free_bytes", 14717812736.0},
      {"headroom_gpu_memory_reserved_bytes", 314572800.0},
      {"headroom_gpu_utilization_ratio", 0.37},
      {"headroom_gpu_temperature_celsius", 61},
      {"headroom_gpu_power_watts", 231.5},
      {"headroom_gpu_process_memory_used_bytes", 9663676416.0}};
  for (const auto& [name, value] : expected) {
    const auto samples = reader.named(name);
    ASSERT_EQ(samples.size(), 1U) << name << ": the other card tells nothing";
    EXPECT_DOUBLE_EQ(samples[0].value, value) << name;
    EXPECT_EQ(samples[0].labels.at("index"), "0");
    EXPECT_EQ(samples[0].labels.at("uuid"), "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6");
    EXPECT_EQ(samples[0].labels.at("name"), "NVIDIA GeForce RTX 4090");
  }
}

TEST(PrometheusText, NamesTheProcessAndItsUserOnly) {
  const auto samples = read(two_cards(kNow)).named("headroom_gpu_process_memory_used_bytes");
  ASSERT_EQ(samples.size(), 1U);
  EXPECT_EQ(samples[0].labels.at("pid"), "1234");
  EXPECT_EQ(samples[0].labels.at("user"), "alice");
  EXPECT_FALSE(samples[0].labels.contains("command")) << "commands vary without end";
}

TEST(PrometheusText, LeavesOutProcessesUnlessAsked) {
  EXPECT_THAT(read(two_cards(kNow), false).names(),
              Not(Contains("headroom_gpu_process_memory_used_bytes")));
}

TEST(PrometheusText, EscapesLabels) {
  auto machine = two_cards(kNow);
  const std::string odd = "a \"quoted\" back\\slash\nand a {brace}, = 1";
  machine.cards[0].name = odd;
  machine.cards[0].processes->front().user = odd;
  const auto samples = read(machine).named("headroom_gpu_process_memory_used_bytes");
  ASSERT_EQ(samples.size(), 1U);
  EXPECT_EQ(samples[0].labels.at("name"), odd);
  EXPECT_EQ(samples[0].labels.at("user"), odd);
}

TEST(PrometheusText, GivesOfAnUnknownCardOnlyItsAge) {
  std::vector<std::string> names;
  for (const Sample& sample : read(two_cards(kNow)).samples)
    if (sample.labels.at("index") == "1") names.push_back(sample.name);
  EXPECT_THAT(names, ElementsAre("headroom_gpu_sample_age_seconds"));
}

// The list of processes of a card that does not answer was once written on as if it were new.
TEST(PrometheusText, GivesOfAStaleCardOnlyItsAge) {
  const Reader reader = read(two_cards(kNow - std::chrono::seconds(3)));
  ASSERT_EQ(reader.samples.size(), 2U);
  EXPECT_THAT(reader.names(), Each(std::string("headroom_gpu_sample_age_seconds")));
  EXPECT_DOUBLE_EQ(reader.samples[0].value, 3);
}

TEST(PrometheusText, ForgetsAProcessThatIsGone) {
  auto machine = two_cards(kNow);
  machine.cards[0].processes->clear();
  EXPECT_TRUE(read(machine).named("headroom_gpu_process_memory_used_bytes").empty());
}

TEST(PrometheusText, LeavesOutProcessesWithoutANumberOrSize) {
  auto machine = two_cards(kNow);
  machine.cards[0].processes->front().pid.reset();
  EXPECT_TRUE(read(machine).named("headroom_gpu_process_memory_used_bytes").empty());
  machine.cards[0].processes->front().pid = 5;
  machine.cards[0].processes->front().used.reset();
  EXPECT_TRUE(read(machine).named("headroom_gpu_process_memory_used_bytes").empty());
}

TEST(PrometheusText, TellsOneProcessOnTwoCardsApart) {
  auto machine = two_cards(kNow);
  machine.cards[1].processes = machine.cards[0].processes;
  EXPECT_EQ(read(machine).named("headroom_gpu_process_memory_used_bytes").size(), 2U);
}

TEST(PrometheusText, HasNoSampleForAMachineWithoutCards) {
  EXPECT_TRUE(read(gpu::Machine{}).samples.empty());
}

// An administrator saw memory, and nothing of leases and who waits for them.
TEST(PrometheusLeases, TellWhatIsReservedAndWhoWaits) {
  gpu::Machine machine = two_cards(kNow);
  machine.cards[0].withheld.now = 3_GiB;
  lease::Contents contents;
  lease::Claim claim;
  claim.user = "alice";
  claim.shares = {{machine.cards[0].uuid, 8_GiB}};
  contents.leases = {claim, claim};
  contents.waiting.resize(2);
  contents.waiting[1].looking = false;
  const Reader text(prometheus_leases(machine, contents, kNow));
  const auto reserved = text.named("headroom_lease_reserved_bytes");
  ASSERT_EQ(reserved.size(), 1U);
  EXPECT_EQ(reserved[0].value, (16_GiB).count);
  EXPECT_EQ(reserved[0].labels.at("user"), "alice");
  EXPECT_EQ(reserved[0].labels.at("index"), "0");
  EXPECT_EQ(text.named("headroom_lease_unused_bytes")[0].value, (3_GiB).count);
  EXPECT_EQ(text.named("headroom_gpu_memory_usable_bytes")[0].value,
            (machine.cards[0].memory->free - 3_GiB).count);
  EXPECT_EQ(text.named("headroom_leases")[0].value, 2);
  EXPECT_EQ(text.named("headroom_waiting_jobs")[0].value, 1) << "one that is stopped waits not";
}

}  // namespace
}  // namespace headroom::watch
