// Leases as the commands show them: `lease list`, `who`, `queue`, and what they take from others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "headroom/gpu/simulated.h"
#include "headroom/lease/directory.h"
#include "tests/cli/headroom_process.h"
#include "tests/lease/fixtures/children.h"

namespace headroom::testing {
namespace {

using namespace headroom::literals;
using lease::fixtures::Child;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

const char* const kBox = "sim:2x24GiB";

class Leases : public ::testing::Test {
 protected:
  static gpu::Uuid card(std::size_t number) {
    return gpu::make_simulated_source(gpu::parse_simulated(kBox))->open().cards.at(number).uuid;
  }
  [[nodiscard]] lease::Lease make_lease(Bytes reserved, std::size_t number = 0) const {
    const auto turn = directory_.take_turn();
    lease::Claim claim;
    claim.user = "alice";
    claim.command = "python train.py";
    claim.shares = {{card(number), reserved}};
    return turn.make_lease(claim, turn.contents());
  }
  [[nodiscard]] lease::Place make_place(Bytes need, int count = 1) const {
    const auto turn = directory_.take_turn();
    lease::Waiter waiter;
    waiter.user = "bob";
    waiter.command = "python big.py";
    waiter.wish = {.need = need, .count = count, .cards = {card(0), card(1)}};
    return turn.make_place(waiter, turn.contents());
  }
  [[nodiscard]] Outcome run(Arguments arguments) const {
    arguments.insert(arguments.end(), {"--gpus", kBox});
    return world_.headroom(arguments);
  }

  World world_;
  lease::Directory directory_ = lease::Directory::at(world_.path("leases"));
};

TEST_F(Leases, AreListedWithWhatTheContractNames) {
  const lease::Lease mine = make_lease(8_GiB);
  const lease::Place waiting = make_place(30_GiB);
  for (const Arguments& command : {Arguments{"lease", "list", "--json"}, Arguments{"who", "--json"},
                                   Arguments{"queue", "--json"}}) {
    const Json json = run(command).json();
    EXPECT_EQ(json["schema"], 1);
    ASSERT_THAT(json["leases"], SizeIs(1)) << command[0];
    const Json& lease = json["leases"][0];
    EXPECT_EQ(lease["id"], mine.claim().id);
    EXPECT_EQ(lease["uuid"], to_string(card(0)));
    EXPECT_EQ(lease["reserved_bytes"], (8_GiB).count);
    EXPECT_EQ(lease["used_bytes"], 0);
    EXPECT_EQ(lease["pid"], ::getpid());
    EXPECT_EQ(lease["user"], "alice");
    EXPECT_EQ(lease["command"], "python train.py");
    EXPECT_THAT(lease["since"].get<std::string>(), HasSubstr("Z"));
    ASSERT_THAT(json["waiting"], SizeIs(1));
    const Json& waiter = json["waiting"][0];
    EXPECT_EQ(waiter["pid"], ::getpid());
    EXPECT_EQ(waiter["user"], "bob");
    EXPECT_EQ(waiter["need_bytes"], (30_GiB).count);
    EXPECT_EQ(waiter["position"], 1);
    EXPECT_THAT(waiter["why"].get<std::string>(), HasSubstr("short by"));
    EXPECT_TRUE(waiter.contains("since"));
  }
}

TEST_F(Leases, NobodyIsSaidInWords) {
  EXPECT_EQ(run({"lease", "list"}).out, "Nobody has a lease.\n");
  EXPECT_EQ(run({"queue"}).out, "Nobody waits.\n");
  EXPECT_THAT(run({"who"}).out, HasSubstr("nobody"));
  EXPECT_EQ(run({"queue", "--json"}).json()["waiting"], Json::array());
}

TEST_F(Leases, TakeFromWhatIsUsable) {
  const lease::Lease mine = make_lease(20_GiB);
  const Json json = run({"gpus", "--json"}).json();
  EXPECT_EQ(json["gpus"][0]["usable_bytes"], (4_GiB).count);
  EXPECT_EQ(json["gpus"][0]["free_bytes"], (24_GiB).count);
  EXPECT_EQ(json["gpus"][1]["usable_bytes"], (24_GiB).count);
}

TEST_F(Leases, ArePassedByInPick) {
  const lease::Lease mine = make_lease(20_GiB);
  EXPECT_EQ(run({"pick", "--need", "10GiB", "--order", "index"}).out, "1\n");
  EXPECT_EQ(run({"pick", "--need", "10GiB", "--count", "2"}).exit_code, 75);
}

TEST_F(Leases, AreInThePictureOfTheMachine) {
  EXPECT_THAT(run({}).out, Not(HasSubstr("lease")));
  const lease::Lease mine = make_lease(20_GiB);
  const lease::Place waiting = make_place(30_GiB);
  const std::string out = run({}).out;
  EXPECT_THAT(out, HasSubstr("1 lease: 20.00 GiB reserved"));
  EXPECT_THAT(out, HasSubstr("1 waits"));
}

// A job that ended, and left a process that nobody thinks of.
TEST_F(Leases, WhoNamesTheProcessThatKeepsALease) {
  auto mine = std::make_unique<lease::Lease>(make_lease(8_GiB));
  const Child stray([] {});
  ASSERT_TRUE(stray.is_ready());
  mine.reset();
  const Json json = run({"who", "--json"}).json();
  ASSERT_THAT(json["leases"], SizeIs(1));
  EXPECT_EQ(json["leases"][0]["holder_pids"], Json::array({stray.pid()}));
  EXPECT_THAT(run({"who"}).out, HasSubstr("held by PID " + std::to_string(stray.pid())));
}

TEST_F(Leases, TheQueueSaysWhatEachWaitsFor) {
  const lease::Lease mine = make_lease(20_GiB);
  const lease::Place first = make_place(15_GiB, 2), second = make_place(1_GiB);
  const Json waiting = run({"queue", "--json"}).json()["waiting"];
  ASSERT_THAT(waiting, SizeIs(2));
  EXPECT_EQ(waiting[0]["count"], 2);
  EXPECT_THAT(waiting[0]["why"].get<std::string>(), HasSubstr("too few cards"));
  EXPECT_THAT(waiting[1]["why"].get<std::string>(), HasSubstr("about to start"));
  const std::string table = run({"queue"}).out;
  EXPECT_THAT(table, HasSubstr("15.00 GiB x 2"));
  EXPECT_THAT(table, HasSubstr("python big.py"));
}

TEST_F(Leases, OfTheDeadAreRemovedByCleanAndOthersAreNot) {
  const lease::Lease mine = make_lease(1_GiB);
  Child dying([&] { new lease::Lease(make_lease(8_GiB)); });
  ASSERT_TRUE(dying.is_ready());
  dying.kill();
  EXPECT_THAT(directory_.contents().dead, SizeIs(1));
  const Outcome outcome = run({"clean"});
  EXPECT_THAT(outcome.err, HasSubstr("nobody holds it"));
  EXPECT_THAT(directory_.contents().dead, IsEmpty());
  EXPECT_THAT(directory_.contents().leases, SizeIs(1));
}

TEST_F(Leases, ThatCannotBeReadAreAWarningEverywhere) {
  const lease::Lease mine = make_lease(1_GiB);
  std::filesystem::resize_file(directory_.path() / (mine.claim().id + ".lease"), 3);
  EXPECT_EQ(run({"gpus", "--json"}).json()["gpus"][0]["usable_bytes"], 0);
  EXPECT_THAT(run({"gpus", "--json"}).json()["warnings"].dump(), HasSubstr("cannot be read"));
  EXPECT_THAT(run({"lease", "list"}).out, HasSubstr("cannot be read"));
  EXPECT_THAT(run({"pick", "--need", "1GiB"}).exit_code, 75);
}

TEST_F(Leases, FolderIsACheckOfTheDoctor) {
  const Json checks = world_.headroom({"doctor", "--json"}).json()["checks"];
  EXPECT_THAT(checks.dump(), HasSubstr("lease folder"));
  std::filesystem::permissions(directory_.path(), std::filesystem::perms(0700));
  EXPECT_THAT(world_.headroom({"doctor", "--json"}).json()["checks"].dump(), HasSubstr("1777"));
}

TEST_F(Leases, NeedNoFolderToBeLookedAt) {
  std::filesystem::remove_all(directory_.path());
  EXPECT_EQ(run({"lease", "list"}).exit_code, 0);
  EXPECT_FALSE(std::filesystem::exists(directory_.path())) << "looking makes nothing";
}

}  // namespace
}  // namespace headroom::testing
