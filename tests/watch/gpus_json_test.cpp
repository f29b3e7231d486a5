#include "headroom/watch/gpus_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/watch/machines.h"

namespace headroom::watch {
namespace {

using namespace headroom::literals;
using headroom::testing::kNow;
using headroom::testing::two_cards;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Json first_card(const gpu::Machine& machine) {
  return gpus_document(machine, {}, kNow)["gpus"][0];
}

// The keys of CLI.md's contract; more may be added, none may go.
constexpr const char* kTop[] = {"schema", "driver", "gpus", "warnings", "advice"};
constexpr const char* kCard[] = {"index",        "uuid",        "name",           "pci",
                                 "total_bytes",  "used_bytes",  "reserved_bytes", "free_bytes",
                                 "usable_bytes", "utilization", "temperature_c",  "power_w",
                                 "simulated",    "age_s",       "processes"};
constexpr const char* kProcess[] = {"pid", "user", "command", "used_bytes", "kind"};

TEST(GpusDocument, HasEveryKeyOfTheContract) {
  const Json document = gpus_document(two_cards(kNow), {}, kNow);
  for (const char* key : kTop) EXPECT_TRUE(document.contains(key)) << key;
  for (const Json& card : document["gpus"])
    for (const char* key : kCard) EXPECT_TRUE(card.contains(key)) << key;
  for (const char* key : kProcess)
    EXPECT_TRUE(document["gpus"][0]["processes"][0].contains(key)) << key;
}

TEST(GpusDocument, WritesWhatIsKnownInTheContractsUnits) {
  const Json document = gpus_document(two_cards(kNow - std::chrono::milliseconds(500)), {}, kNow);
  EXPECT_EQ(document["schema"], 1);
  EXPECT_EQ(document["driver"], "580.65.06");
  const Json& card = document["gpus"][0];
  EXPECT_EQ(card["uuid"], "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6");
  EXPECT_EQ(card["total_bytes"], (24_GiB).count);
  EXPECT_EQ(card["reserved_bytes"], (300_MiB).count);
  EXPECT_EQ(card["usable_bytes"], card["free_bytes"]);
  EXPECT_DOUBLE_EQ(card["utilization"].get<double>(), 0.37) << "a share, not percent";
  EXPECT_EQ(card["temperature_c"], 61);
  EXPECT_EQ(card["power_w"], 231.5);
  EXPECT_EQ(card["simulated"], false);
  EXPECT_DOUBLE_EQ(card["age_s"].get<double>(), 0.5);
  const Json& process = card["processes"][0];
  EXPECT_EQ(process["pid"], 1234);
  EXPECT_EQ(process["user"], "alice");
  EXPECT_EQ(process["kind"], "compute");
  EXPECT_EQ(process["used_bytes"], (9_GiB).count);
}

TEST(GpusDocument, WritesBytesAsIntegers) {
  const Json card = first_card(two_cards(kNow));
  for (const char* key :
       {"total_bytes", "used_bytes", "reserved_bytes", "free_bytes", "usable_bytes"})
    EXPECT_TRUE(card[key].is_number_integer()) << key;
}

TEST(GpusDocument, WritesNullForTheUnknownNever0) {
  const Json card = gpus_document(two_cards(kNow), {}, kNow)["gpus"][1];
  for (const char* key : {"pci", "total_bytes", "used_bytes", "reserved_bytes", "free_bytes",
                          "usable_bytes", "utilization", "temperature_c", "power_w", "processes"})
    EXPECT_TRUE(card[key].is_null()) << key << " " << card[key];
}

TEST(GpusDocument, TellsUnknownProcessesFromNone) {
  auto machine = two_cards(kNow);
  machine.cards[0].processes = std::vector<gpu::GpuProcess>{};
  EXPECT_EQ(first_card(machine)["processes"], Json::array());
}

TEST(GpusDocument, HasNothingUsableOnAStaleCard) {
  const Json card = first_card(two_cards(kNow - std::chrono::seconds(3)));
  EXPECT_TRUE(card["usable_bytes"].is_null());
  EXPECT_EQ(card["used_bytes"], (10_GiB).count) << "the last figures, with their age";
  EXPECT_DOUBLE_EQ(card["age_s"].get<double>(), 3.0);
  EXPECT_EQ(card["stale"], true);
}

TEST(GpusDocument, HasNoAgeBeforeTheFirstSample) {
  auto machine = two_cards(kNow);
  machine.cards[0].sampled.reset();
  EXPECT_TRUE(first_card(machine)["age_s"].is_null());
}

TEST(GpusDocument, HasNoDriverAndNoCardsWithoutADriver) {
  const Json document = gpus_document(gpu::Machine{}, {{"no driver"}, {}}, kNow);
  EXPECT_TRUE(document["driver"].is_null());
  EXPECT_EQ(document["gpus"], Json::array());
  EXPECT_EQ(document["warnings"], Json::array({"no driver"}));
}

TEST(GpusDocument, CallsAHiddenProcessOtherNamespaceWithoutANumber) {
  auto machine = two_cards(kNow);
  gpu::GpuProcess hidden;
  hidden.kind = gpu::ProcessKind::other_namespace;
  hidden.used = 2_GiB;
  machine.cards[0].processes = {hidden};
  const Json process = first_card(machine)["processes"][0];
  EXPECT_EQ(process["kind"], "other-namespace");
  EXPECT_TRUE(process["pid"].is_null());
  EXPECT_EQ(process["used_bytes"], (2_GiB).count);
}

TEST(DataWarnings, AreNoneForFreshCardsWithoutTrouble) {
  EXPECT_THAT(data_warnings(two_cards(kNow), kNow), IsEmpty());
}

TEST(DataWarnings, TellTheAgeOfAStaleCard) {
  EXPECT_THAT(data_warnings(two_cards(kNow - std::chrono::seconds(3)), kNow),
              Contains("GPU 0: the driver does not answer, data is 3.0 s old"));
  auto machine = two_cards(kNow);
  machine.cards[0].sampled.reset();
  EXPECT_THAT(data_warnings(machine, kNow), Contains(HasSubstr("GPU 0: the driver does not answer, "
                                                               "there is no data")));
}

TEST(DataWarnings, ThoseOfAgeAreKnownFromTheOthers) {
  auto machine = two_cards(kNow - std::chrono::seconds(3));
  machine.cards[1].sampled.reset();
  for (const std::string& warning : data_warnings(machine, kNow)) EXPECT_TRUE(tells_age(warning));
  EXPECT_FALSE(tells_age("GPU 1: GPU is lost"));
}

TEST(DataWarnings, TellTheDriversOwnWords) {
  auto machine = two_cards(kNow);
  machine.cards[1].trouble = "GPU is lost";
  machine.why_no_driver = "no driver";
  EXPECT_THAT(data_warnings(machine, kNow),
              ::testing::ElementsAre("no driver", "GPU 1: GPU is lost"));
}

}  // namespace
}  // namespace headroom::watch
