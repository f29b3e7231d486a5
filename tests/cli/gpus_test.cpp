// `headroom gpus` and `headroom` alone: the cards, without the driver's sentinel values.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "headroom/base/process.h"
#include "headroom/lease/ledger.h"
#include "tests/cli/headroom_process.h"

namespace headroom::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// The contract's keys of `gpus --json`.
constexpr const char* kCardKeys[] = {"index",        "uuid",        "name",           "pci",
                                     "total_bytes",  "used_bytes",  "reserved_bytes", "free_bytes",
                                     "usable_bytes", "utilization", "temperature_c",  "power_w",
                                     "simulated",    "age_s",       "processes"};

Json two_cards() {
  Json first = card("24GiB", {process(::getpid(), "10GiB")});
  first["reserved"] = "300MiB";
  first["utilization"] = 37;
  return machine({first, card("80GiB")});
}

std::vector<int> indices(const Json& document) {
  std::vector<int> found;
  for (const Json& card : document["gpus"]) found.push_back(card["index"]);
  return found;
}

TEST(Gpus, HasEveryKeyOfTheContractAndNothingOnStderr) {
  World world;
  world.driver(two_cards());
  const Outcome outcome = world.headroom({"gpus", "--json"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.err, "");
  const Json json = outcome.json();
  EXPECT_EQ(json["schema"], 1);
  EXPECT_EQ(json["driver"], "580.65.06");
  EXPECT_TRUE(json["warnings"].is_array() && json["advice"].is_array());
  ASSERT_EQ(json["gpus"].size(), 2U);
  for (const Json& card : json["gpus"])
    for (const char* key : kCardKeys) EXPECT_TRUE(card.contains(key)) << key;
  EXPECT_EQ(json["gpus"][0]["total_bytes"], 24 * kGiB);
  EXPECT_EQ(json["gpus"][0]["reserved_bytes"], 300 * kMiB);
  EXPECT_EQ(json["gpus"][0]["utilization"], 0.37);
  EXPECT_EQ(json["gpus"][0]["simulated"], false);
}

TEST(Gpus, NamesTheProcessesOfACard) {
  if (!pids_are_ours()) GTEST_SKIP() << "process numbers of the driver are not ours here";
  World world;
  world.driver(two_cards());
  const Json process = world.headroom({"gpus", "--json"}).json()["gpus"][0]["processes"].at(0);
  EXPECT_EQ(process["pid"], ::getpid());
  EXPECT_EQ(process["used_bytes"], 10 * kGiB);
  EXPECT_EQ(process["kind"], "compute");
  EXPECT_THAT(process["command"].get<std::string>(), HasSubstr("cli_tests"));
  EXPECT_THAT(world.headroom({"gpus", "--processes"}).out, HasSubstr(std::to_string(::getpid())));
}

TEST(Gpus, InventsNoNameForAnInvisibleProcess) {
  World world;
  world.driver(machine({card("24GiB", {process(2'000'000'000, "10GiB")})}));
  const Json process = world.headroom({"gpus", "--json"}).json()["gpus"][0]["processes"].at(0);
  EXPECT_TRUE(process["pid"].is_null());
  EXPECT_TRUE(process["command"].is_null());
  EXPECT_EQ(process["kind"], "other-namespace");
  EXPECT_EQ(process["used_bytes"], 10 * kGiB);
}

TEST(Gpus, AddsUpToTheTotalWhateverTheDriverRounds) {
  for (const char* driver : {FAKE_NVML, FAKE_NVML_OLD}) {
    World world;
    Json odd = card("25757220864");
    odd.update({{"reserved", 332'922'881}, {"used", 11'811'160'065}});
    world.driver(machine({card("24GiB"), odd}));
    world.set("HEADROOM_NVML", driver);
    const Json json = world.headroom({"gpus", "--json"}).json();
    EXPECT_EQ(json["gpus"].size(), 2U);
    for (const Json& card : json["gpus"]) {
      const auto reserved =
          card["reserved_bytes"].is_null() ? 0 : card["reserved_bytes"].get<std::int64_t>();
      const std::int64_t sum = card["used_bytes"].get<std::int64_t>() + reserved +
                               card["free_bytes"].get<std::int64_t>();
      EXPECT_NEAR(static_cast<double>(sum - card["total_bytes"].get<std::int64_t>()), 0, kMiB);
    }
  }
}

TEST(Gpus, WritesNullForWhatTheDriverDoesNotTell) {
  World world;
  Json silent = card("24GiB");
  silent.update({{"utilization", nullptr}, {"temperature", nullptr}, {"power_mw", nullptr}});
  Json blind = {{"total", nullptr}};
  world.driver(machine({silent, blind}));
  const Json gpus = world.headroom({"gpus", "--json"}).json()["gpus"];
  for (const char* key : {"utilization", "temperature_c", "power_w"})
    EXPECT_TRUE(gpus[0][key].is_null()) << key;
  for (const char* key : {"total_bytes", "used_bytes", "free_bytes", "usable_bytes"})
    EXPECT_TRUE(gpus[1][key].is_null()) << key;
  EXPECT_THAT(world.headroom({"gpus"}).out, Not(HasSubstr("18446744073709551615")));
}

// ---- Without a driver ----

TEST(Gpus, WithoutADriverIsAWarningAndNoError) {
  const World world;
  const Outcome outcome = world.headroom({"gpus", "--json"});
  EXPECT_EQ(outcome.exit_code, 0);
  const Json json = outcome.json();
  EXPECT_TRUE(json["driver"].is_null());
  EXPECT_EQ(json["gpus"], Json::array());
  EXPECT_FALSE(json["warnings"].empty());
}

TEST(Gpus, SaysWhyThereIsNoDriver) {
  World world;
  EXPECT_THAT(world.headroom({"gpus"}).out, HasSubstr("no-driver.so"));
  world.set("HEADROOM_NVML", "/etc/passwd");
  const Outcome no_library = world.headroom({"gpus"});
  EXPECT_EQ(no_library.exit_code, 0);
  EXPECT_THAT(no_library.out, HasSubstr("/etc/passwd"));
}

TEST(Gpus, SaysThatTheDriverIsNotLoaded) {
  World world;
  world.driver({{"init", "DRIVER_NOT_LOADED"}});
  const Outcome outcome = world.headroom({"gpus", "--json"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.json()["gpus"], Json::array());
  EXPECT_FALSE(outcome.json()["warnings"].empty());
}

TEST(Overview, WithoutADriverIsAWarningAndANextStep) {
  const World world;
  const Outcome outcome = world.headroom({});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("no-driver.so"), HasSubstr("Next: headroom doctor")));
}

// ---- A driver that hangs ----

TEST(Gpus, MarksACardThatDoesNotAnswerAndShowsTheOther) {
  World world;
  Json fault = hang("nvmlDeviceGetMemoryInfo*");
  fault["card"] = 0;
  world.driver(machine({card("24GiB"), card("80GiB")}, {fault}));
  const Outcome outcome = world.headroom({"gpus", "--json"});
  EXPECT_EQ(outcome.exit_code, 0);
  const Json json = outcome.json();
  ASSERT_EQ(json["gpus"].size(), 2U);
  EXPECT_TRUE(json["gpus"][0]["usable_bytes"].is_null());
  EXPECT_EQ(json["gpus"][0]["stale"], true);
  EXPECT_EQ(json["gpus"][1]["usable_bytes"], 80 * kGiB - lease::kMargin.count);
  EXPECT_THAT(json["warnings"].dump(), HasSubstr("GPU 0: the driver does not answer"));
}

// ---- Which cards ----

TEST(Gpus, ListsTheCardsThatWereAskedFor) {
  World world;
  Json named = card("80GiB");
  named["uuid"] = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6";
  world.driver(machine({card("24GiB"), named, card("24GiB")}));
  EXPECT_THAT(indices(world.headroom({"gpus", "--json", "--gpus", "2,0"}).json()),
              ElementsAre(2, 0));
  EXPECT_THAT(indices(world.headroom({"gpus", "--json", "--gpus", "GPU-8932"}).json()),
              ElementsAre(1));
  world.set("HEADROOM_GPUS", "1");
  EXPECT_THAT(indices(world.headroom({"gpus", "--json"}).json()), ElementsAre(1));
  EXPECT_THAT(indices(world.headroom({"gpus", "--json", "--gpus", "all"}).json()),
              ElementsAre(0, 1, 2));
}

TEST(Gpus, RefusesACardThatIsNotThere) {
  World world;
  world.driver(machine({card("24GiB")}));
  const Outcome outcome = world.headroom({"gpus", "--json", "--gpus", "7"});
  EXPECT_EQ(outcome.exit_code, 64);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, HasSubstr("expected a GPU of this machine (0), received '7'"));
}

TEST(Gpus, ShowsAllCardsWhateverCudaMaySee) {
  World world;
  world.driver(machine({card("24GiB"), card("24GiB")}));
  world.set("CUDA_VISIBLE_DEVICES", "1");
  EXPECT_THAT(indices(world.headroom({"gpus", "--json"}).json()), ElementsAre(0, 1));
}

TEST(Gpus, WarnsThatAnEmptyListHidesEveryCardFromCuda) {
  World world;
  world.driver(machine({card("24GiB")}));
  world.set("CUDA_VISIBLE_DEVICES", "");
  EXPECT_THAT(world.headroom({"gpus", "--json"}).json()["warnings"].dump(),
              HasSubstr("CUDA_VISIBLE_DEVICES"));
}

// ---- Simulated ----

TEST(Gpus, SimulatesCardsWithoutADriver) {
  const World world;
  const Json json = world.headroom({"gpus", "--json", "--gpus", "sim:8x31.36GiB"}).json();
  ASSERT_EQ(json["gpus"].size(), 8U);
  EXPECT_TRUE(json["driver"].is_null());
  EXPECT_EQ(json["gpus"][7]["simulated"], true);
  EXPECT_EQ(json["gpus"][7]["total_bytes"], 33672543601);
  EXPECT_THAT(json["warnings"], IsEmpty());
}

Json box(const std::vector<std::int64_t>& totals, const std::vector<Json>& shares) {
  Json cards = Json::array();
  for (const std::int64_t total : totals) cards.push_back({{"total_bytes", total}});
  return {{"cards", cards}, {"shares", shares}};
}

Json share(const ProcessIdentity& who, int card, std::int64_t used) {
  return {{"pid", who.pid}, {"start_ticks", who.start_ticks}, {"card", card}, {"used_bytes", used}};
}

TEST(SharedBox, ShowsTheSharesOfTheLivingOnly) {
  const World world;
  const ProcessIdentity we = this_process(), reused{we.pid, we.start_ticks - 1};
  const Json file = box({24 * kGiB, 24 * kGiB}, {share(we, 0, 10 * kGiB), share(reused, 1, kGiB)});
  world.folder().write("state/boxes/lab.json", file.dump());
  const Json gpus = world.headroom({"gpus", "--json", "--gpus", "sim:2x24GiB@lab"}).json()["gpus"];
  ASSERT_EQ(gpus.size(), 2U);
  EXPECT_EQ(gpus[0]["used_bytes"], 10 * kGiB);
  EXPECT_EQ(gpus[0]["processes"].at(0)["pid"], we.pid);
  EXPECT_EQ(gpus[1]["used_bytes"], 0) << "its number belongs to another process now";
}

TEST(SharedBox, WithOtherCardsIsRefusedAndLeftAlone) {
  const World world;
  const auto path = world.folder().write("state/boxes/lab.json", box({80 * kGiB}, {}).dump());
  const Outcome outcome = world.headroom({"gpus", "--gpus", "sim:2x24GiB@lab"});
  EXPECT_EQ(outcome.exit_code, 64);
  EXPECT_THAT(outcome.err, HasSubstr("the box 'lab' exists with other cards"));
  EXPECT_TRUE(std::filesystem::exists(path));
}

TEST(SharedBox, InAnInvalidFileIsBadInput) {
  const World world;
  for (const char* text :
       {"", "{", "[]", R"({"cards":3})", R"({"cards":[{"total_bytes":1e999}]})"}) {
    world.folder().write("state/boxes/lab.json", text);
    const Outcome outcome = world.headroom({"gpus", "--gpus", "sim:1x24GiB@lab"});
    EXPECT_EQ(outcome.exit_code, 65) << text << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("lab.json"));
  }
}

// ---- The picture ----

TEST(Overview, ShowsEachCardAtMostThreeWarningsAndOneNextCommand) {
  World world;
  std::vector<Json> cards, faults;
  for (int i = 0; i < 6; ++i) {
    cards.push_back(card("24GiB"));
    faults.push_back(
        {{"function", "nvmlDeviceGetUtilizationRates"}, {"card", i}, {"do", "GPU_IS_LOST"}});
  }
  world.driver(machine(cards, faults));
  const Outcome outcome = world.headroom({});
  EXPECT_EQ(outcome.exit_code, 0);
  int warnings = 0, next = 0;
  for (const std::string& line : lines_of(outcome.out)) {
    warnings += line.starts_with(" ▲ ") ? 1 : 0;
    next += line.starts_with("Next: ") ? 1 : 0;
  }
  EXPECT_EQ(warnings, 3) << outcome.out;
  EXPECT_EQ(next, 1);
  EXPECT_THAT(outcome.out, HasSubstr("(+3 more"));
}

TEST(Overview, FitsInto80Cells) {
  const World world;
  for (const std::string& line : lines_of(world.headroom({"--gpus", "sim:16xH100"}).out)) {
    const auto cells = std::count_if(line.begin(), line.end(), [](char c) {
      return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
    });
    EXPECT_LE(cells, 80) << line;
  }
}

TEST(Output, HasNoEscapesInAPipeEvenFromACommandThatHoldsSome) {
  if (!pids_are_ours()) GTEST_SKIP() << "process numbers of the driver are not ours here";
  World world;
  const Holder holder(Holder::Kind::child, "bash -c \"exec -a 'train\033[31m' sleep 1000\"");
  world.driver(machine({card("24GiB", {process(holder.pid(), "10GiB")})}));
  for (const Arguments& command : {Arguments{}, {"gpus", "--processes"}, {"clean", "--stats-only"}})
    EXPECT_THAT(world.headroom(command).out, AllOf(HasSubstr("train"), Not(HasSubstr("\033"))));
}

TEST(Output, IsAsciiInALocaleWithoutUtf8) {
  World world;
  world.set("LC_ALL", "C");
  const std::string out = world.headroom({"--gpus", "sim:2x24GiB"}).out;
  EXPECT_TRUE(std::all_of(out.begin(), out.end(), [](char c) { return c > 0; })) << out;
}

}  // namespace
}  // namespace headroom::testing
