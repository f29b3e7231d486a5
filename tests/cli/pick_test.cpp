// `headroom pick`: the cards with room, now or in time, or the reason why not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

#include "headroom/base/process.h"
#include "headroom/lease/ledger.h"
#include "tests/cli/headroom_process.h"

namespace headroom::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr std::int64_t kMargin = lease::kMargin.count;

Json used(const std::string& total, const std::string& amount, int load = 0) {
  Json json = card(total);
  json.update({{"used", amount}, {"utilization", load}});
  return json;
}

// 14, 70 and 20 GiB free; the second works, the others do not.
Json three_cards() {
  return machine({used("24GiB", "10GiB"), used("80GiB", "10GiB", 90), used("24GiB", "4GiB", 3)});
}

// ---- Which ----

TEST(Pick, PrintsTheCardWithMostFreeMemory) {
  World world;
  world.driver(three_cards());
  const Outcome outcome = world.headroom({"pick", "--need", "10GiB"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.out, "1\n");
  EXPECT_EQ(outcome.err, "");
}

TEST(Pick, ObeysTheOrder) {
  World world;
  world.driver(three_cards());
  const auto picked = [&](const char* order) {
    return world.headroom({"pick", "--need", "10GiB", "--order", order}).out;
  };
  EXPECT_EQ(picked("most-free"), "1\n");
  EXPECT_EQ(picked("least-loaded"), "0\n");
  EXPECT_EQ(picked("index"), "0\n");
}

TEST(Pick, GivesAsManyAsAskedBestFirst) {
  World world;
  world.driver(three_cards());
  EXPECT_EQ(world.headroom({"pick", "--need", "10GiB", "--count", "3"}).out, "1,2,0\n");
  EXPECT_EQ(world.headroom({"pick", "--need", "15GiB", "--count", "3"}).exit_code, 75);
}

TEST(Pick, GivesUuidsIfWanted) {
  World world;
  Json named = card("24GiB");
  named["uuid"] = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6";
  world.driver(machine({named}));
  EXPECT_EQ(world.headroom({"pick", "--need", "1GiB", "--ids", "uuid"}).out,
            "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6\n");
}

TEST(Pick, TakesOnlyWhatCudaMaySee) {
  World world;
  world.driver(three_cards());
  world.set("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
  world.set("CUDA_VISIBLE_DEVICES", "0,2");
  EXPECT_EQ(world.headroom({"pick", "--need", "10GiB"}).out, "2\n");
  EXPECT_EQ(world.headroom({"pick", "--need", "60GiB"}).exit_code, 75);
  EXPECT_EQ(world.headroom({"pick", "--need", "60GiB", "--gpus", "1"}).out, "1\n")
      << "a card that is named is meant";
}

// It once said 75, try later, of what no waiting changes.
TEST(Pick, HasNoCardWhereCudaMaySeeNone) {
  World world;
  world.driver(three_cards());
  world.set("CUDA_VISIBLE_DEVICES", "");
  const Outcome outcome = world.headroom({"pick", "--need", "1GiB", "--wait"});
  EXPECT_EQ(outcome.exit_code, 69);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, HasSubstr("CUDA_VISIBLE_DEVICES=''"));
}

TEST(Pick, TakesTheListedCardsOnly) {
  World world;
  world.driver(three_cards());
  EXPECT_EQ(world.headroom({"pick", "--need", "10GiB", "--gpus", "0,2"}).out, "2\n");
  EXPECT_EQ(world.headroom({"pick", "--need", "10GiB", "--gpus", "9"}).exit_code, 64);
}

TEST(Pick, NeedsExactlyWhatItSays) {
  World world;
  world.driver(machine({used("24GiB", "14272MiB")}));  // 10 GiB and the margin are free
  EXPECT_EQ(world.headroom({"pick", "--need", "10GiB"}).exit_code, 0);
  EXPECT_EQ(world.headroom({"pick", "--need", "10737418241"}).exit_code, 75) << "one byte more";
}

// ---- None ----

TEST(Pick, SaysTheShortfallAndWhoHoldsTheMemory) {
  World world;
  world.driver(machine({card("24GiB", {process(::getpid(), "17GiB")})}));
  const Outcome outcome = world.headroom({"pick", "--need", "10GiB"});
  EXPECT_EQ(outcome.exit_code, 75);
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(lines_of(outcome.err).size(), 1U) << outcome.err;
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("need 10.00 GiB; best is GPU 0 with 6.94 GiB usable, "
                                           "short by 3.06 GiB; held by "),
                                 HasSubstr("17.00 GiB")));
  if (!pids_are_ours()) GTEST_SKIP() << "process numbers of the driver are not ours here";
  EXPECT_THAT(outcome.err, HasSubstr("PID " + std::to_string(::getpid())));
}

TEST(PickJson, HasEveryKeyOfTheContractWhenItPicked) {
  World world;
  world.driver(three_cards());
  const Outcome outcome = world.headroom({"pick", "--need", "10GiB", "--json"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.err, "");
  const Json json = outcome.json();
  EXPECT_EQ(json["schema"], 1);
  EXPECT_EQ(json["need_bytes"], 10 * kGiB);
  EXPECT_EQ(json["shortfall_bytes"], 0);
  EXPECT_THAT(json["holders"], IsEmpty());
  EXPECT_TRUE(json["waited_s"].is_number());
  ASSERT_EQ(json["picked"].size(), 1U);
  EXPECT_EQ(json["picked"][0]["index"], 1);
  EXPECT_EQ(json["picked"][0]["usable_bytes"], 70 * kGiB - kMargin);
  EXPECT_TRUE(json["picked"][0]["uuid"].get<std::string>().starts_with("GPU-"));
}

TEST(PickJson, HasShortfallAndHoldersWhenItDidNot) {
  World world;
  world.driver(machine({card("24GiB", {process(::getpid(), "17GiB")})}));
  const Outcome outcome = world.headroom({"pick", "--need", "10GiB", "--json"});
  EXPECT_EQ(outcome.exit_code, 75);
  const Json json = outcome.json();
  EXPECT_THAT(json["picked"], IsEmpty());
  EXPECT_EQ(json["shortfall_bytes"], 3 * kGiB + kMargin);
  ASSERT_EQ(json["holders"].size(), 1U);
  for (const char* key : {"uuid", "pid", "user", "command", "used_bytes"})
    EXPECT_TRUE(json["holders"][0].contains(key)) << key;
  EXPECT_EQ(json["holders"][0]["used_bytes"], 17 * kGiB);
}

TEST(Pick, WithoutADriverIsUnavailable) {
  const World world;
  for (const Arguments& command :
       {Arguments{"pick", "--need", "1GiB"}, {"pick", "--need", "1GiB", "--wait"}}) {
    const Outcome outcome = world.headroom(command);
    EXPECT_EQ(outcome.exit_code, 69);
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err, HasSubstr("no-driver.so"));
  }
  const Outcome json = world.headroom({"pick", "--need", "1GiB", "--json"});
  EXPECT_EQ(json.exit_code, 69);
  EXPECT_THAT(json.json()["picked"], IsEmpty());
}

TEST(Pick, WithADriverThatSeesNoCardIsUnavailable) {
  World world;
  world.driver(machine({}));
  EXPECT_EQ(world.headroom({"pick", "--need", "1GiB"}).exit_code, 69);
}

// ---- Bad input ----

class PickRefuses : public ::testing::TestWithParam<std::pair<Arguments, std::string>> {};

TEST_P(PickRefuses, WithASentenceAndWithoutTouchingAnything) {
  World world;
  world.driver(machine({card("24GiB")}));
  Arguments command{"pick"};
  command.insert(command.end(), GetParam().first.begin(), GetParam().first.end());
  const Outcome outcome = world.headroom(command);
  EXPECT_EQ(outcome.exit_code, 64);
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(lines_of(outcome.err).size(), 1U) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr(GetParam().second));
  EXPECT_FALSE(std::filesystem::exists(world.state()));
}

INSTANTIATE_TEST_SUITE_P(
    Input, PickRefuses,
    ::testing::Values(
        std::pair(Arguments{}, "--need is required"),
        std::pair(Arguments{"--need", "10 apples"}, "expected a size such as 512MiB"),
        std::pair(Arguments{"--need", ""}, "expected a size"),
        std::pair(Arguments{"--need", "10"}, "try 10GiB"),
        std::pair(Arguments{"--need", "0"}, "--need: expected more than 0"),
        std::pair(Arguments{"--need", "1GiB", "--count", "0"}, "at least 1, received '0'"),
        std::pair(Arguments{"--need", "1GiB", "--count", "two"}, "--count"),
        std::pair(Arguments{"--need", "1GiB", "--order", "most-fre"}, "try most-free"),
        std::pair(Arguments{"--need", "1GiB", "--ids", "name"}, "expected index or uuid"),
        std::pair(Arguments{"--need", "1GiB", "--interval", "soon"}, "expected a time"),
        std::pair(Arguments{"--need", "1GiB", "--wait", "--timeout", "soon"}, "expected a time"),
        // It was ignored without a word.
        std::pair(Arguments{"--need", "1GiB", "--timeout", "5s"}, "--timeout requires --wait"),
        std::pair(Arguments{"--need", "1GiB", "--gpus", "cpu"}, "expected GPUs to pick from"),
        std::pair(Arguments{"--need", "1GiB", "--gpus", "RTX 409O"}, "RTX 4090"),
        std::pair(Arguments{"--need", "1GiB", "--gpus", "sim:0x24GiB"}, "sim:24GiB"),
        std::pair(Arguments{"--need", "1GiB", "--gpus", "0,0"}, "each card once")));

// ---- Waiting ----

TEST(PickWait, GivesTheCardAsSoonAsThereIsRoom) {
  World world;
  world.driver(machine({used("24GiB", "20GiB")}));
  const auto pick =
      world.start({"pick", "--need", "10GiB", "--wait", "--interval", "200ms", "--json"});
  ASSERT_TRUE(pick->until_err_has("short by 6.06 GiB")) << pick->err();
  world.driver(machine({used("24GiB", "1GiB")}));
  const Outcome outcome = pick->wait();
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.json()["picked"][0]["usable_bytes"], 23 * kGiB - kMargin);
  EXPECT_GT(outcome.json()["waited_s"].get<double>(), 0.1);
}

TEST(PickWait, GivesUpInTimeWithShortfallAndHolders) {
  World world;
  world.driver(machine({card("24GiB", {process(::getpid(), "20GiB")})}));
  const Outcome outcome = world.headroom(
      {"pick", "--need", "10GiB", "--wait", "--timeout", "400ms", "--interval", "200ms"});
  EXPECT_EQ(outcome.exit_code, 75);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(lines_of(outcome.err).back(),
              AllOf(HasSubstr("short by 6.06 GiB"), HasSubstr("held by"), HasSubstr("20.00 GiB")));
}

TEST(PickWait, EndsWithCtrlC) {
  World world;
  world.driver(machine({used("24GiB", "20GiB")}));
  const auto pick = world.start({"pick", "--need", "10GiB", "--wait", "--json"});
  ASSERT_TRUE(pick->until_err_has("waiting")) << pick->err();
  pick->signal(SIGINT);
  const Outcome outcome = pick->wait();
  EXPECT_EQ(outcome.exit_code, 130);
  EXPECT_EQ(outcome.out, "");
}

TEST(PickWait, EndsWithSigterm) {
  World world;
  world.driver(machine({used("24GiB", "20GiB")}));
  const auto pick = world.start({"pick", "--need", "10GiB", "--wait"});
  ASSERT_TRUE(pick->until_err_has("waiting")) << pick->err();
  pick->signal(SIGTERM);
  EXPECT_EQ(pick->wait().exit_code, 143);
}

// ---- A driver that hangs ----

TEST(Pick, DecidesNothingOnOldData) {
  World world;
  world.driver(machine({card("24GiB")}, {hang("nvmlDeviceGetMemoryInfo*")}));
  const Outcome outcome = world.headroom({"pick", "--need", "1GiB"});
  EXPECT_EQ(outcome.exit_code, 75);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, HasSubstr("data is 3 s old"));
}

TEST(Pick, DecidesNothingWhileTheDriverDoesNotEvenOpen) {
  World world;
  world.driver(machine({card("24GiB")}, {hang("nvmlInit*")}));
  const Outcome outcome = world.headroom({"pick", "--need", "1GiB", "--json"});
  EXPECT_EQ(outcome.exit_code, 75);
  EXPECT_THAT(outcome.err, HasSubstr("data is 3 s old"));
  EXPECT_THAT(outcome.json()["picked"], IsEmpty());
}

TEST(Pick, TakesAnotherCardThanTheOneThatHangs) {
  World world;
  Json fault = hang("nvmlDeviceGetMemoryInfo*");
  fault["card"] = 1;
  world.driver(machine({card("24GiB"), card("80GiB")}, {fault}));
  const Outcome outcome = world.headroom({"pick", "--need", "1GiB"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.out, "0\n");
}

// ---- Simulated ----

TEST(Pick, PicksFromASharedBoxWhatOthersLeft) {
  const World world;
  const ProcessIdentity we = this_process();
  const Json total{{"total_bytes", 24 * kGiB}};
  const Json share{
      {"pid", we.pid}, {"start_ticks", we.start_ticks}, {"card", 0}, {"used_bytes", 20 * kGiB}};
  world.folder().write("state/boxes/lab.json",
                       Json{{"cards", {total, total}}, {"shares", {share}}}.dump());
  const Arguments box{"pick", "--gpus", "sim:2x24GiB@lab", "--need"};
  const auto pick = [&](const char* need, const char* count) {
    Arguments command = box;
    command.insert(command.end(), {need, "--count", count});
    return world.headroom(command);
  };
  EXPECT_EQ(pick("10GiB", "1").out, "1\n");
  const Outcome two = pick("10GiB", "2");
  EXPECT_EQ(two.exit_code, 75);
  EXPECT_THAT(two.err, AllOf(HasSubstr("on 2 cards, 1 found"), HasSubstr("short by 6.00 GiB"),
                             HasSubstr("PID " + std::to_string(we.pid))));
}

}  // namespace
}  // namespace headroom::testing
