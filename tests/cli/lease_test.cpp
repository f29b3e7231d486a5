// Leases as the commands show them: `lease list`, `who`, `queue`, and what they take from others.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "headroom/base/file.h"
#include "headroom/base/process.h"
#include "headroom/gpu/simulated.h"
#include "headroom/lease/detail/locked_file.h"
#include "headroom/lease/directory.h"
#include "headroom/lease/ledger.h"
#include "tests/cli/headroom_process.h"
#include "tests/lease/fixtures/children.h"
#include "tests/lease/fixtures/shared_card.h"

namespace headroom::testing {
namespace {

using namespace headroom::literals;
using lease::fixtures::Child;
using ::testing::Contains;
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
  [[nodiscard]] lease::PlaceInQueue join_queue(Bytes need, int count = 1) const {
    const auto turn = directory_.take_turn();
    lease::Waiter waiter;
    waiter.user = "bob";
    waiter.command = "python big.py";
    waiter.wish = {.need = need, .count = count, .cards = {card(0), card(1)}};
    return turn.join_queue(waiter, turn.contents());
  }
  // Root's files are believed; of any other user's the owner is named.
  static std::string name_of(const std::string& said) {
    return ::geteuid() == 0 ? said : user_name(::geteuid());
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
  const lease::PlaceInQueue waiting = join_queue(30_GiB);
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
    EXPECT_EQ(lease["user"], name_of("alice"));
    EXPECT_EQ(lease["command"], "python train.py");
    EXPECT_THAT(lease["since"].get<std::string>(), HasSubstr("Z"));
    ASSERT_THAT(json["waiting"], SizeIs(1));
    const Json& waiter = json["waiting"][0];
    EXPECT_EQ(waiter["pid"], ::getpid());
    EXPECT_EQ(waiter["user"], name_of("bob"));
    EXPECT_EQ(waiter["need_bytes"], (30_GiB).count);
    EXPECT_EQ(waiter["position"], 1);
    EXPECT_THAT(waiter["why"].get<std::string>(), HasSubstr("short by"));
    EXPECT_TRUE(waiter.contains("since"));
  }
}

TEST_F(Leases, NoneIsReportedInWords) {
  EXPECT_EQ(run({"lease", "list"}).out, "There are no leases.\n");
  EXPECT_EQ(run({"queue"}).out, "No job waits.\n");
  EXPECT_THAT(run({"who"}).out, HasSubstr("no lease and no process"));
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
  const lease::PlaceInQueue waiting = join_queue(30_GiB);
  const std::string out = run({}).out;
  EXPECT_THAT(out, HasSubstr("1 lease: 20.00 GiB reserved"));
  EXPECT_THAT(out, HasSubstr("1 waits"));
}

// A job that ended and left a forgotten process.
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
  const lease::PlaceInQueue first = join_queue(15_GiB, 2), second = join_queue(1_GiB);
  const Json waiting = run({"queue", "--json"}).json()["waiting"];
  ASSERT_THAT(waiting, SizeIs(2));
  EXPECT_EQ(waiting[0]["count"], 2);
  EXPECT_THAT(waiting[0]["why"].get<std::string>(), HasSubstr("1 of 2 cards found"));
  EXPECT_THAT(waiting[0]["why"].get<std::string>(), HasSubstr("too few cards"));
  EXPECT_THAT(waiting[1]["why"].get<std::string>(), HasSubstr("about to start"));
  const std::string table = run({"queue"}).out;
  EXPECT_THAT(table, HasSubstr("15.00 GiB x 2"));
  EXPECT_THAT(table, HasSubstr("python big.py"));
}

// The commands once differed by the margin that is never promised.
TEST_F(Leases, LeaveTheSameUsableMemoryInEveryCommand) {
  world_.driver(machine({testing::card("24GiB", {process(::getpid(), "10GiB")})}));
  const gpu::Uuid uuid =
      gpu::Uuid::from_driver(world_.headroom({"gpus", "--json"}).json()["gpus"][0]["uuid"]);
  const auto turn = directory_.take_turn();
  lease::Waiter wants;
  wants.wish = {.need = 20_GiB, .count = 1, .cards = {uuid}};
  const lease::PlaceInQueue waiting = turn.join_queue(wants, turn.contents());
  const auto shown = world_.headroom({"gpus", "--json"}).json()["gpus"][0]["usable_bytes"];
  const std::string usable = to_string(Bytes{shown}) + " usable";
  EXPECT_EQ(Bytes{shown}, 14_GiB - lease::kMargin);
  EXPECT_THAT(world_.headroom({"who"}).out, HasSubstr(usable));
  EXPECT_THAT(world_.headroom({}).out, HasSubstr(usable));
  EXPECT_THAT(world_.headroom({"queue"}).out, HasSubstr(usable));
  EXPECT_THAT(world_.headroom({"pick", "--need", "20GiB"}).err, HasSubstr(usable));
}

// Files of a container: their numbers belong to other processes here, or to none.
TEST_F(Leases, OfAnotherNamespaceShowNoProcessOfOurs) {
  const lease::Lease mine = make_lease(8_GiB);
  const lease::PlaceInQueue place = join_queue(30_GiB);
  std::vector<int> held;
  for (const std::string& name : {mine.claim().id + ".lease", place.id() + ".wait"}) {
    std::string text = read_input(directory_.path() / name);
    const std::string key = "\"pid_namespace\":";
    const std::size_t at = text.find(key) + key.size();
    text.replace(at, text.find_first_of(",}", at) - at, "1");
    held.push_back(
        lease::detail::make_locked_file(directory_.path(), "0badc0de" + name.substr(8), text));
  }
  const Json json = run({"who", "--json"}).json();
  for (const Json& lease : json["leases"]) {
    const bool foreign = lease["id"] == "0badc0de";
    EXPECT_EQ(lease["pid"].is_null(), foreign);
    EXPECT_EQ(lease["used_bytes"].is_null(), foreign) << "its processes cannot be told apart";
  }
  ASSERT_THAT(json["waiting"], SizeIs(2));
  EXPECT_NE(json["waiting"][0]["pid"].is_null(), json["waiting"][1]["pid"].is_null());
  const std::string own = std::to_string(::getpid());
  const auto named = [&](const std::string& text) {
    return lines_of(text).size() > 1 && text.find(own) != text.rfind(own);
  };
  EXPECT_FALSE(named(run({"queue"}).out)) << "only mine";
  EXPECT_FALSE(named(run({"lease", "list"}).out));
  for (const int file : held) ::close(file);
}

TEST_F(Leases, OfAnotherNamespaceAreNotQuotedOnProcesses) {
  std::string text;
  {
    const auto turn = directory_.take_turn();
    lease::Waiter waiter;
    waiter.wish.cards = {lease::fixtures::uuid_of(7)};  // a card that is not checked
    waiter.why = "held by PID 4242";
    const lease::PlaceInQueue place = turn.join_queue(waiter, turn.contents());
    text = read_input(directory_.path() / (place.id() + ".wait"));
    EXPECT_THAT(run({"queue"}).out, HasSubstr("PID 4242"));
  }
  const std::size_t at = text.find("\"pid_namespace\":");
  text.replace(at, text.find(',', at) - at, "\"pid_namespace\":1");
  const int file = lease::detail::make_locked_file(directory_.path(), "0badc0de.wait", text);
  EXPECT_THAT(run({"queue"}).out, Not(HasSubstr("PID 4242")));
  ::close(file);
}

TEST_F(Leases, HoldersAreSearchedByWhoOnly) {
  const lease::Lease mine = make_lease(8_GiB);
  EXPECT_TRUE(run({"queue", "--json"}).json()["leases"][0]["holder_pids"].is_null());
  EXPECT_TRUE(run({"lease", "list", "--json"}).json()["leases"][0]["holder_pids"].is_null());
  EXPECT_THAT(run({"who", "--json"}).json()["leases"][0]["holder_pids"], Contains(::getpid()));
}

// A waiter is told "number 1 of 1" when the one before it is stopped: so says the queue.
TEST_F(Leases, APositionCountsWaitersThatLookOnly) {
  const lease::PlaceInQueue stopped = join_queue(30_GiB), second = join_queue(30_GiB);
  const timespec past[2] = {{.tv_sec = 1, .tv_nsec = 0}, {.tv_sec = 1, .tv_nsec = 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, (directory_.path() / (stopped.id() + ".wait")).c_str(), past, 0),
            0);
  for (const char* command : {"queue", "who"}) {
    const Json waiting = run({command, "--json"}).json()["waiting"];
    ASSERT_THAT(waiting, SizeIs(2));
    EXPECT_TRUE(waiting[0]["position"].is_null());
    EXPECT_EQ(waiting[1]["position"], 1);
  }
}

TEST_F(Leases, OfAnotherUserShowTheFilesOwnerWhateverItSays) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  std::filesystem::permissions(world_.folder().path(), std::filesystem::perms(0755));
  const Child nobody([&] {
    if (::setuid(65534) != 0) ::_exit(1);
    new lease::Lease(make_lease(8_GiB));
  });
  ASSERT_TRUE(nobody.is_ready());
  EXPECT_EQ(run({"lease", "list", "--json"}).json()["leases"][0]["user"], user_name(65534));
  EXPECT_THAT(run({"who"}).out, Not(HasSubstr("alice")));
}

TEST_F(Leases, InAnUnreadableFolderLeaveNothingUsable) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  std::filesystem::permissions(world_.folder().path(), std::filesystem::perms(0755));
  std::filesystem::permissions(directory_.path(), std::filesystem::perms(0700));
  const Outcome outcome = world_.run({"setpriv", "--reuid=65534", "--clear-groups", HEADROOM_BINARY,
                                      "gpus", "--json", "--gpus", kBox});
  EXPECT_EQ(outcome.json()["gpus"][0]["usable_bytes"], 0);
  EXPECT_THAT(outcome.json()["warnings"].dump(), HasSubstr("chmod 1777"));
}

TEST_F(Leases, NeedAFolderThatOtherMachinesDoNotSee) {
  world_.set("HEADROOM_LEASE_DIR", "/proc");
  const Json gpus = run({"gpus", "--json"}).json();
  EXPECT_EQ(gpus["gpus"][0]["usable_bytes"], (24_GiB).count);
  EXPECT_THAT(gpus["warnings"].dump(), HasSubstr("file system"));
  EXPECT_THAT(run({"clean"}).err, HasSubstr("left the leases alone"));
}

TEST_F(Leases, OfEndedProcessesAreRemovedByCleanAndOthersAreNot) {
  const lease::Lease mine = make_lease(1_GiB);
  Child dying([&] { new lease::Lease(make_lease(8_GiB)); });
  ASSERT_TRUE(dying.is_ready());
  dying.kill();
  EXPECT_THAT(directory_.contents().dead, SizeIs(1));
  const Outcome outcome = run({"clean"});
  EXPECT_THAT(outcome.err, HasSubstr("no process holds it"));
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

TEST_F(Leases, AreListedWithoutAFolder) {
  std::filesystem::remove_all(directory_.path());
  EXPECT_EQ(run({"lease", "list"}).exit_code, 0);
  EXPECT_FALSE(std::filesystem::exists(directory_.path())) << "looking makes nothing";
}

// ---- Ending them

TEST_F(Leases, AreEndedByTheirOwnerAndTellTheirHolder) {
  const lease::Lease mine = make_lease(20_GiB);
  EXPECT_FALSE(mine.ended_by());
  const Outcome outcome = world_.headroom({"lease", "end", mine.claim().id});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("20.00 GiB on 1 card are no longer reserved"));
  EXPECT_EQ(mine.ended_by(), user_name(::geteuid()));
  EXPECT_EQ(run({"gpus", "--json"}).json()["gpus"][0]["usable_bytes"], (24_GiB).count);
  EXPECT_EQ(world_.headroom({"lease", "end", mine.claim().id}).exit_code, 64) << "only once";
}

TEST_F(Leases, AWrongIdEndsNone) {
  const lease::Lease mine = make_lease(20_GiB);
  EXPECT_EQ(world_.headroom({"lease", "end", mine.claim().id, "0badf00d"}).exit_code, 64);
  EXPECT_FALSE(mine.ended_by());
}

TEST_F(Leases, TheCommandsOutputSaysThatItsLeaseWasEnded) {
  ASSERT_EQ(::mkfifo(world_.path("gate").c_str(), 0600), 0);
  const auto job = world_.start({"run", "--gpus", kBox, "--need", "20GiB", "--", "sh", "-c",
                                 "echo $HEADROOM_LEASE; read go < " + world_.path("gate")});
  ASSERT_TRUE(job->until([](const Running& one) { return one.out().size() == 9; }));
  EXPECT_EQ(world_.headroom({"lease", "end", job->out().substr(0, 8)}).exit_code, 0);
  EXPECT_TRUE(job->until_err_has("was ended by"));
  write_file_atomically(world_.path("gate"), "go\n");
  EXPECT_EQ(job->wait().exit_code, 0) << "it runs on";
}

// `clean` said "Nobody holds GPU memory" beside a lease that nothing had used for hours.
TEST_F(Leases, LongUnusedOnesAreShown) {
  const lease::Lease mine = make_lease(20_GiB);
  EXPECT_THAT(run({"who"}).out, Not(HasSubstr("uses none of it")));
  const std::string path = world_.path("leases") + "/" + mine.claim().id + ".lease";
  Json claim = Json::parse(*read_file(path));
  claim["since_unix_ms"] = claim["since_unix_ms"].get<long long>() - 2 * 3'600'000;
  const std::string text = claim.dump() + "\n";
  ASSERT_EQ(::pwrite(mine.descriptor(), text.data(), text.size(), 0),
            static_cast<ssize_t>(text.size()));
  for (const Arguments& command : {Arguments{"who"}, Arguments{"clean"}, Arguments{}}) {
    const std::string out = run(command).out;
    EXPECT_THAT(out, HasSubstr("uses none of it; headroom lease end")) << out;
  }
}

// ---- Limits of the site

TEST_F(Leases, MoreThanTheSiteAllowsIsRefusedAtOnce) {
  Json site;
  site["limits"]["users"][user_name(::geteuid())] = {{"reserved", "24GiB"}, {"cards", 1}};
  World limited;
  limited.set("HEADROOM_SITE", limited.folder().write("site.json", site.dump()));
  const auto run_with = [&](Arguments options) {
    options.insert(options.begin(), {"run", "--gpus", kBox});
    options.insert(options.end(), {"--", "true"});
    return limited.headroom(options);
  };
  EXPECT_EQ(run_with({"--need", "20GiB"}).exit_code, 0);
  EXPECT_EQ(run_with({}).exit_code, 0) << "of unknown need: as much as is allowed";
  const Outcome memory = run_with({"--need", "13GiB", "--count", "2"});
  EXPECT_EQ(memory.exit_code, 75);
  EXPECT_THAT(memory.err, HasSubstr("asked for 26.00 GiB, and the limit of"));
  EXPECT_THAT(run_with({"--need", "1GiB", "--count", "2"}).err, HasSubstr("1 card at a time"));
  limited.set("HEADROOM_SITE", limited.folder().write("bad.json", "{"));
  EXPECT_THAT(run_with({"--need", "20GiB"}).err, HasSubstr("sets no limits"));
}

// A misspelt name was a limit for no user, and nothing said so.
TEST_F(Leases, AUserOfTheSiteThatTheMachineDoesNotKnowIsNamed) {
  World limited;
  limited.set("HEADROOM_SITE", limited.folder().write(
                                   "site.json", R"({"limits": {"users": {"no-such-user": {}}}})"));
  EXPECT_THAT(limited.headroom({"doctor"}).out, HasSubstr("limits for no-such-user limit no user"));
}

}  // namespace
}  // namespace headroom::testing
