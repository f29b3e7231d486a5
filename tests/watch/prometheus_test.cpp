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
  [[nodiscard]] std::vector<std::string> names_of_card(const std::string& index) const {
    std::vector<std::string> found;
    for (const Sample& sample : samples)
      if (const auto own = sample.labels.find("index");
          own != sample.labels.end() && own->second == index)
        found.push_back(sample.name);
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
      const bool counts = family_.ends_with("_total");
      EXPECT_EQ(line, "# TYPE " + family_ + (counts ? " counter" : " gauge"));
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
  return Reader(prometheus_text(card_metrics(machine, {.processes = processes}, kNow)));
}

TEST(PrometheusText, GivesEveryKnownFigureInBaseUnits) {
  const Reader reader = read(two_cards(kNow));
  const std::map<std::string, double> expected{
      {"headroom_gpu_memory_total_bytes", 25769803776.0},
      {"headroom_gpu_memory_used_bytes", 10737418240.0},
      {"headroom_gpu_memory_free_bytes", 14717812736.0},
      {"headroom_gpu_memory_reserved_bytes", 314572800.0},
      {"headroom_gpu_utilization_ratio", 0.37},
      {"headroom_gpu_memory_utilization_ratio", 0.12},
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
  EXPECT_THAT(read(two_cards(kNow)).names_of_card("1"),
              ElementsAre("headroom_gpu_sample_age_seconds"));
}

// The list of processes of a card that does not answer was once written on as if it were new.
TEST(PrometheusText, GivesOfAStaleCardOnlyItsAge) {
  const Reader reader = read(two_cards(kNow - std::chrono::seconds(3)));
  for (const char* card : {"0", "1"})
    EXPECT_THAT(reader.names_of_card(card), ElementsAre("headroom_gpu_sample_age_seconds"));
  EXPECT_DOUBLE_EQ(reader.named("headroom_gpu_sample_age_seconds")[0].value, 3);
}

// A sample that is taken every 15 s is up to 15 s old when it is read.
TEST(PrometheusText, KeepsCardsAsLongAsAsked) {
  const gpu::Machine machine = two_cards(kNow - std::chrono::seconds(14));
  const auto text = [&](Seconds fresh_for) {
    return prometheus_text(card_metrics(machine, {.fresh_for = fresh_for}, kNow));
  };
  EXPECT_TRUE(Reader(text(Seconds(2))).named("headroom_gpu_memory_used_bytes").empty());
  EXPECT_EQ(Reader(text(Seconds(17))).named("headroom_gpu_memory_used_bytes").size(), 1U);
}

TEST(PrometheusText, SaysWhetherTheDriverAnswers) {
  const auto up = [](const gpu::Machine& machine) {
    return read(machine).named("headroom_driver_up").at(0).value;
  };
  gpu::Machine hanging = two_cards(kNow);
  hanging.cards[1].stuck = true;
  EXPECT_EQ(up(two_cards(kNow)), 1);
  EXPECT_EQ(up(hanging), 0);
  EXPECT_EQ(up(two_cards(kNow - std::chrono::seconds(3))), 0);
  EXPECT_EQ(up(gpu::Machine{}), 0);
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

TEST(PrometheusText, HasNoCardSampleForAMachineWithoutCards) {
  EXPECT_THAT(read(gpu::Machine{}).names(), ElementsAre("headroom_driver_up"));
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
  contents.waiting[0].wish = {.need = 10_GiB, .count = 2};
  contents.waiting[0].since = std::chrono::system_clock::now() - std::chrono::hours(1);
  contents.waiting[1].looking = false;
  const Reader text(prometheus_text(lease_metrics(machine, contents, {}, kNow)));
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
  EXPECT_EQ(text.named("headroom_waiting_need_bytes")[0].value, (20_GiB).count);
  EXPECT_GE(text.named("headroom_waiting_longest_seconds")[0].value, 3600);
}

// ---- Jobs

JobStatus training() {
  return {.pid = 77,
          .what = "train gpt2",
          .step = 17,
          .steps = 2000,
          .loss = 2.5,
          .micro_batch = 4,
          .batch = 32,
          .ooms_survived = 3,
          .rows_per_s = 12.5};
}

TEST(PrometheusJobs, TellHowATrainingGoes) {
  const Reader text(prometheus_text(job_metrics({training()}, WallTime(std::chrono::seconds(5)))));
  const std::map<std::string, double> expected{{"headroom_job_step", 17},
                                               {"headroom_job_planned_steps", 2000},
                                               {"headroom_job_loss", 2.5},
                                               {"headroom_job_batch_rows", 32},
                                               {"headroom_job_micro_batch_rows", 4},
                                               {"headroom_job_rows_per_second", 12.5},
                                               {"headroom_job_ooms_survived_total", 3},
                                               {"headroom_job_status_age_seconds", 5}};
  EXPECT_EQ(text.samples.size(), expected.size());
  for (const auto& [name, value] : expected) {
    const auto samples = text.named(name);
    ASSERT_EQ(samples.size(), 1U) << name;
    EXPECT_EQ(samples[0].value, value) << name;
    EXPECT_EQ(samples[0].labels,
              (std::map<std::string, std::string>{{"pid", "77"}, {"what", "train gpt2"}}));
  }
}

TEST(PrometheusJobs, TellTheCardsOfATraining) {
  JobStatus job = training();
  job.gpus = {"GPU-1", "GPU-2"};
  const auto samples = Reader(prometheus_text(job_metrics({job}))).named("headroom_job_gpu");
  ASSERT_EQ(samples.size(), 2U);
  EXPECT_EQ(samples[1].value, 1);
  EXPECT_EQ(samples[1].labels, (std::map<std::string, std::string>{
                                   {"pid", "77"}, {"what", "train gpt2"}, {"uuid", "GPU-2"}}));
}

TEST(PrometheusJobs, LeaveOutWhatIsNotKnownYet) {
  const Reader text(prometheus_text(job_metrics({{.pid = 77, .what = "train gpt2"}})));
  EXPECT_THAT(text.names(),
              ElementsAre("headroom_job_ooms_survived_total", "headroom_job_status_age_seconds"));
}

// ---- OpenMetrics

TEST(OpenMetrics, NamesFamiliesAndTheirUnits) {
  Family scrapes{.name = "a_scrapes", .kind = MetricKind::counter, .help = "Scrapes."};
  scrapes.series = {{{}, 2}};
  Family build{.name = "a_build", .kind = MetricKind::info, .help = "Version."};
  build.series = {{{{"version", "0.1"}}, 1}};
  Family age{.name = "a_age_seconds", .help = "Age."};
  age.series = {{{}, 0.5}};
  const Family empty{.name = "a_b", .help = "Without series."};
  EXPECT_EQ(prometheus_text({scrapes, build, age, empty}, TextFormat::openmetrics),
            "# HELP a_scrapes Scrapes.\n# TYPE a_scrapes counter\na_scrapes_total 2.0\n"
            "# HELP a_build Version.\n# TYPE a_build info\na_build_info{version=\"0.1\"} 1.0\n"
            "# HELP a_age_seconds Age.\n# TYPE a_age_seconds gauge\n# UNIT a_age_seconds seconds\n"
            "a_age_seconds 0.5\n# EOF\n");
  EXPECT_EQ(prometheus_text({scrapes, build}),
            "# HELP a_scrapes_total Scrapes.\n# TYPE a_scrapes_total counter\n"
            "a_scrapes_total 2.0\n"
            "# HELP a_build_info Version.\n# TYPE a_build_info gauge\n"
            "a_build_info{version=\"0.1\"} 1.0\n");
}

using Accepted = std::pair<const char*, TextFormat>;
class PreferredFormat : public ::testing::TestWithParam<Accepted> {};

TEST_P(PreferredFormat, IsTheOneTheClientWeighsHigher) {
  EXPECT_EQ(preferred_format(GetParam().first), GetParam().second) << GetParam().first;
}

constexpr TextFormat kOpen = TextFormat::openmetrics, kClassic = TextFormat::classic;
INSTANTIATE_TEST_SUITE_P(
    Headers, PreferredFormat,
    ::testing::Values(
        Accepted{"", kClassic}, Accepted{"*/*", kClassic},
        Accepted{"text/html,*/*;q=0.8", kClassic}, Accepted{"application/openmetrics-text", kOpen},
        Accepted{"Application/OpenMetrics-Text; Version=\"1.0.0\"; Q=1", kOpen},
        Accepted{"application/openmetrics-text; version=0.0.1", kClassic},
        Accepted{"application/openmetrics-text; version=0.0.1, application/openmetrics-text",
                 kOpen},
        // Prometheus 2.42 and 3.0
        Accepted{"application/openmetrics-text;version=1.0.0,application/openmetrics-text;"
                 "version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                 kOpen},
        Accepted{"application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,"
                 "application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;"
                 "escaping=allow-utf-8;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
                 kOpen},
        Accepted{"application/openmetrics-text;q=0.3, text/plain;q=0.5", kClassic},
        Accepted{"application/openmetrics-text;q=0.3, text/*;q=0.2, */*;q=0.9", kOpen},
        Accepted{"application/openmetrics-text;q=0, text/plain;q=0", kClassic},
        Accepted{"application/openmetrics-text;q=many", kClassic}, Accepted{";;,,;q=", kClassic}));

}  // namespace
}  // namespace headroom::watch
