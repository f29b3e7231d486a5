#include "headroom/watch/csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>

#include "headroom/base/text.h"
#include "tests/watch/machines.h"

namespace headroom::watch {
namespace {

using namespace headroom::literals;
using headroom::testing::kNow;
using headroom::testing::two_cards;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const WallTime kWhen{std::chrono::milliseconds(1795266187'250)};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (const auto line : split(text, '\n')) lines.emplace_back(line);
  EXPECT_EQ(lines.back(), "") << "the last line is whole";
  lines.pop_back();
  return lines;
}

// A reader of RFC 4180 that knows nothing of the writer.
std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields{""};
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (quoted && line[i] == '"' && i + 1 < line.size() && line[i + 1] == '"') {
      fields.back() += line[i++];
    } else if (line[i] == '"') {
      quoted = !quoted;
    } else if (line[i] == ',' && !quoted) {
      fields.emplace_back();
    } else {
      fields.back() += line[i];
    }
  }
  return fields;
}

TEST(CsvHeader, IsTheContractsToTheLetter) {
  EXPECT_EQ(csv_header(false),
            "timestamp,index,name,utilization.gpu [%],utilization.memory [%],memory.used [MiB],"
            "memory.free [MiB]\n");
  EXPECT_EQ(csv_header(true),
            "timestamp,index,name,utilization.gpu [%],utilization.memory [%],memory.used [MiB],"
            "memory.free [MiB],pid,process,process.used [MiB]\n");
}

// Local times without their zone could not be compared with another machine's.
TEST(CsvRows, NameTheZoneOfTheirTime) {
  const char* before = std::getenv("TZ");
  const std::string saved = before == nullptr ? "" : before;
  ::setenv("TZ", "XYZ-05:30", 1);
  ::tzset();
  const std::string when = fields_of(lines_of(csv_rows(two_cards(kNow), kWhen, false, kNow))[0])[0];
  before == nullptr ? ::unsetenv("TZ") : ::setenv("TZ", saved.c_str(), 1);
  ::tzset();
  EXPECT_TRUE(when.ends_with("+05:30")) << when;
}

TEST(CsvRows, HaveOneLineACardAndEmptyFieldsForTheUnknown) {
  const auto lines = lines_of(csv_rows(two_cards(kNow), kWhen, false, kNow));
  ASSERT_EQ(lines.size(), 2U);
  const std::string when = fields_of(lines[0])[0];
  EXPECT_EQ(when.substr(0, 23), local_timestamp(kWhen));
  EXPECT_EQ(lines[0], when + ",0,NVIDIA GeForce RTX 4090,37,12,10240,14036");
  EXPECT_EQ(lines[1], when + ",1,unknown GPU,,,,");
}

TEST(CsvRows, HaveOneLineAProcess) {
  auto machine = two_cards(kNow);
  machine.cards[0].processes->push_back(machine.cards[0].processes->front());
  machine.cards[0].processes->back().pid = 77;
  machine.cards[0].processes->back().used.reset();
  const auto lines = lines_of(csv_rows(machine, kWhen, true, kNow));
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_TRUE(lines[0].ends_with(",37,12,10240,14036,1234,python train.py,9216")) << lines[0];
  EXPECT_TRUE(lines[1].ends_with(",37,12,10240,14036,77,python train.py,")) << lines[1];
  EXPECT_TRUE(lines[2].ends_with(",1,unknown GPU,,,,,,,")) << lines[2];
}

TEST(CsvRows, AlwaysHaveAsManyFieldsAsTheHeader) {
  for (const bool processes : {false, true}) {
    for (const auto age : {Seconds(0), Seconds(5)}) {
      const auto header = fields_of(lines_of(csv_header(processes))[0]);
      const auto sampled = kNow - std::chrono::duration_cast<Clock::duration>(age);
      for (const auto& line : lines_of(csv_rows(two_cards(sampled), kWhen, processes, kNow)))
        EXPECT_EQ(fields_of(line).size(), header.size()) << line;
    }
  }
}

TEST(CsvRows, MarkAStaleCardByEmptyFigures) {
  const auto sampled = kNow - std::chrono::milliseconds(2001);
  const auto lines = lines_of(csv_rows(two_cards(sampled), kWhen, true, kNow));
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0], fields_of(lines[0])[0] + ",0,NVIDIA GeForce RTX 4090,,,,,,,");
}

TEST(CsvRows, KeepTheFiguresOfDataJustFreshEnough) {
  const auto lines =
      lines_of(csv_rows(two_cards(kNow - std::chrono::milliseconds(2000)), kWhen, false, kNow));
  EXPECT_TRUE(lines[0].ends_with(",37,12,10240,14036")) << lines[0];
}

TEST(CsvRows, HaveNoFiguresBeforeTheFirstSample) {
  auto machine = two_cards(kNow);
  machine.cards[0].sampled.reset();
  EXPECT_TRUE(lines_of(csv_rows(machine, kWhen, false, kNow))[0].ends_with(",,,,"));
}

TEST(CsvRows, QuoteACommandThatHoldsCommasAndQuotes) {
  auto machine = two_cards(kNow);
  const std::string command = "python -c \"print(1, 2)\"";
  machine.cards[0].processes->front().command = command;
  const auto fields = fields_of(lines_of(csv_rows(machine, kWhen, true, kNow))[0]);
  ASSERT_EQ(fields.size(), 10U);
  EXPECT_EQ(fields[8], command);
}

TEST(CsvRows, NameAHiddenProcessByItsKindWithoutANumber) {
  auto machine = two_cards(kNow);
  gpu::GpuProcess hidden;
  hidden.kind = gpu::ProcessKind::other_namespace;
  hidden.used = 2_GiB;
  machine.cards[0].processes = {hidden};
  EXPECT_TRUE(
      lines_of(csv_rows(machine, kWhen, true, kNow))[0].ends_with(",,other-namespace,2048"));
}

TEST(CsvRows, AreNoneForAMachineWithoutCards) {
  EXPECT_EQ(csv_rows(gpu::Machine{}, kWhen, true, kNow), "");
}

TEST(CsvRows, QuoteOnlyNamesThatNeedQuotes) {
  const auto row_of = [](const std::string& name) {
    auto machine = two_cards(kNow);
    machine.cards = {machine.cards[0]};
    machine.cards[0].name = name;
    return csv_rows(machine, kWhen, false, kNow);
  };
  EXPECT_THAT(row_of("plain text"), HasSubstr(",0,plain text,37,"));
  EXPECT_THAT(row_of(""), HasSubstr(",0,,37,"));
  EXPECT_THAT(row_of("a,b"), HasSubstr(",0,\"a,b\",37,"));
  EXPECT_THAT(row_of("say \"hi\""), HasSubstr(",0,\"say \"\"hi\"\"\",37,"));
  EXPECT_THAT(row_of("two\nlines"), HasSubstr(",0,\"two\nlines\",37,"));
}

}  // namespace
}  // namespace headroom::watch
