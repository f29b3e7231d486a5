// The folder of leases: who is alive in it, who may do what, and what garbage does.

#include "headroom/lease/directory.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <fstream>

#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/lease/detail/file_system.h"
#include "headroom/lease/detail/locked_file.h"
#include "headroom/lease/detail/point.h"
#include "tests/gpu/fixtures/eventually.h"
#include "tests/lease/fixtures/children.h"
#include "tests/lease/fixtures/shared_card.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/temporary_folder.h"

namespace headroom::lease {
namespace {

using namespace fixtures;
using headroom::gpu::fixtures::eventually;
using headroom::testing::FileSizeLimit;
using headroom::testing::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

class LeaseFolder : public ::testing::Test {
 protected:
  // Others must be able to get to it.
  LeaseFolder() { std::filesystem::permissions(folder_.path(), std::filesystem::perms(0755)); }

  Lease lease(Bytes reserved = 8_GiB) {
    const Directory::Turn turn = directory_.take_turn();
    Claim claim;
    claim.user = "alice";
    claim.command = "python train.py";
    claim.shares = {{uuid_of(0), reserved}};
    return turn.make_lease(claim, turn.contents());
  }
  Place place() {
    const Directory::Turn turn = directory_.take_turn();
    Waiter waiter;
    waiter.wish = {.need = 3_GiB, .count = 2, .cards = {uuid_of(0), uuid_of(1)}};
    return turn.make_place(waiter, turn.contents());
  }
  [[nodiscard]] std::filesystem::path file_of(const Lease& lease) const {
    return directory_.path() / (lease.claim().id + ".lease");
  }
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(directory_.path()))
      found.push_back(entry.path().filename().string());
    return found;
  }
  // What lies there besides the file of grants.
  [[nodiscard]] std::vector<std::string> files() const {
    auto found = names();
    std::erase_if(found, [](const std::string& name) { return name.ends_with(".grants"); });
    return found;
  }
  void sweep() const {
    const Directory::Turn turn = directory_.take_turn();
    (void)turn.remove_dead(turn.contents());
  }

  TemporaryFolder folder_;
  Directory directory_ = Directory::at(folder_.path() / "leases");
};

std::filesystem::path only_wait_file(const Directory& directory) {
  for (const auto& entry : std::filesystem::directory_iterator(directory.path()))
    if (entry.path().extension() == ".wait") return entry.path();
  return {};
}

void set_time(const std::filesystem::path& path, timespec time) {
  const timespec times[2] = {time, time};
  ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
}

// ---- A lease's life ----

TEST_F(LeaseFolder, ALeaseIsSeenAsItWasMade) {
  const Lease mine = lease();
  const Contents now = directory_.contents();
  ASSERT_THAT(now.leases, SizeIs(1));
  const Claim& claim = now.leases[0];
  EXPECT_EQ(claim.id, mine.claim().id);
  EXPECT_EQ(claim.owner, this_process());
  EXPECT_EQ(claim.user, "alice");
  EXPECT_EQ(claim.command, "python train.py");
  EXPECT_EQ(reserved_on(claim, uuid_of(0)), 8_GiB);
  EXPECT_EQ(reserved_on(claim, uuid_of(1)), 0_GiB);
  EXPECT_EQ(claim.uid, ::geteuid());
  EXPECT_LT(std::chrono::abs(claim.since - mine.claim().since), std::chrono::milliseconds(1));
}

TEST_F(LeaseFolder, ALeaseEndsWithItsObject) {
  { const Lease mine = lease(); }
  EXPECT_THAT(directory_.contents().leases, IsEmpty());
  EXPECT_THAT(files(), IsEmpty());
}

TEST_F(LeaseFolder, ALeaseMovesWithItsObject) {
  Lease first = lease();
  const std::string id = first.claim().id;
  Lease second = std::move(first);
  EXPECT_EQ(directory_.contents().leases.at(0).id, id);
  second = lease();
  ASSERT_THAT(directory_.contents().leases, SizeIs(1));
  EXPECT_NE(directory_.contents().leases[0].id, id);
}

TEST_F(LeaseFolder, TheKernelEndsALeaseWhoseHolderIsKilled) {
  Child child([&] { static_cast<void>(new Lease(lease())); });
  ASSERT_TRUE(child.is_ready());
  EXPECT_THAT(directory_.contents().leases, SizeIs(1));
  child.kill();
  EXPECT_THAT(directory_.contents().leases, IsEmpty());
  EXPECT_THAT(directory_.contents().dead, SizeIs(1));
  sweep();
  EXPECT_THAT(files(), IsEmpty());
}

TEST_F(LeaseFolder, TheLeaseSurvivesItsOwnerWhileAChildHoldsTheDescriptor) {
  auto mine = std::make_unique<Lease>(lease());
  Child child([] {});
  ASSERT_TRUE(child.is_ready());
  mine.reset();
  EXPECT_THAT(directory_.contents().leases, SizeIs(1));
  sweep();
  EXPECT_THAT(directory_.contents().leases, SizeIs(1)) << "swept while held";
  child.kill();
  EXPECT_THAT(directory_.contents().leases, IsEmpty());
}

TEST_F(LeaseFolder, AProgramThatIsStartedInheritsTheLease) {
  auto mine = std::make_unique<Lease>(lease());
  const pid_t sleeper = ::fork();
  if (sleeper == 0) {
    ::execlp("sleep", "sleep", "1000", nullptr);
    ::_exit(127);
  }
  EXPECT_TRUE(eventually(
      [&] { return read_file("/proc/" + std::to_string(sleeper) + "/comm") == "sleep\n"; }));
  mine.reset();
  EXPECT_THAT(directory_.contents().leases, SizeIs(1));
  ::kill(sleeper, SIGKILL);
  ::waitpid(sleeper, nullptr, 0);
  EXPECT_THAT(directory_.contents().leases, IsEmpty());
}

// A process with the number that the file names is alive, and yet the lease is over; and one whose
// named owner never was is held: process numbers prove nothing either way.
TEST_F(LeaseFolder, AReusedProcessNumberNeitherKeepsNorEndsALease) {
  std::string text;
  {
    const Lease mine = lease();
    text = read_input(file_of(mine));
  }
  std::ofstream(directory_.path() / "0badc0de.lease")
      << text;  // our number, our start time, no lock
  EXPECT_THAT(directory_.contents().leases, IsEmpty());

  const std::size_t at = text.find("\"pid\":");
  text.replace(at, text.find(',', at) - at, "\"pid\":999999999");
  const int file = detail::make_locked_file(directory_.path(), "1.lease", text);
  EXPECT_THAT(directory_.contents().leases, SizeIs(1));
  ::close(file);
}

TEST_F(LeaseFolder, WhoDiesAnywhereInTheMakingLeavesNothingThatCounts) {
  for (int point = 0; point < 6; ++point) {
    static int dies_at = 0;
    dies_at = point;
    const pid_t child = ::fork();
    if (child == 0) {
      detail::at_point = [](detail::Point here) {
        if (static_cast<int>(here) == dies_at) ::kill(::getpid(), SIGKILL);
      };
      static_cast<void>(new Lease(lease()));
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status)) << point;
    EXPECT_THAT(directory_.contents().leases, IsEmpty()) << point;
    EXPECT_THAT(directory_.contents().riddles, IsEmpty()) << point;
    sweep();  // takes a turn: the dead one's is over
    EXPECT_THAT(files(), IsEmpty()) << point;
  }
}

// ---- Other users ----

TEST_F(LeaseFolder, AnotherUserCannotAlterNorRemoveMine) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become somebody else";
  const Lease mine = lease();
  const std::string path = file_of(mine).string();
  const int answer = as_nobody([&] {
    if (::open(path.c_str(), O_WRONLY) >= 0) return 1;
    if (::unlink(path.c_str()) == 0) return 2;
    if (::rename(path.c_str(), (path + "x").c_str()) == 0) return 3;
    if (::chmod(path.c_str(), 0666) == 0) return 4;
    return directory_.contents().leases.size() == 1 ? 0 : 5;
  });
  EXPECT_EQ(answer, 0);
}

TEST_F(LeaseFolder, AnotherUserCannotKeepMineAlive) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become somebody else";
  auto mine = std::make_unique<Lease>(lease());
  const std::string path = file_of(*mine).string();
  int alive = 1;
  const int answer = as_nobody([&] {
    mine.reset();  // the copy that the child has: the owner's goes on
    const int file = ::open(path.c_str(), O_RDONLY);
    struct flock range {};
    range.l_type = F_WRLCK;
    if (file < 0 || ::fcntl(file, F_OFD_SETLK, &range) == 0) return 1;
    return 0;
  });
  EXPECT_EQ(answer, 0) << "a write lock needs a descriptor that may write";
  // A reader's lock is all that is left to him, and it does not count.
  const std::string text = read_input(path);
  mine.reset();
  std::ofstream(path) << text;
  ::chmod(path.c_str(), 0644);
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct flock range {};
  range.l_type = F_RDLCK;
  ASSERT_EQ(::fcntl(file, F_OFD_SETLK, &range), 0);
  alive = static_cast<int>(directory_.contents().leases.size());
  EXPECT_EQ(alive, 0);
  ::close(file);
}

TEST_F(LeaseFolder, UsersShareTheFolderAndItsTickets) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become somebody else";
  const Lease mine = lease();
  const int answer = as_nobody([&] {
    const Lease his = lease();
    return his.claim().ticket == mine.claim().ticket + 1 ? 0 : 1;
  });
  EXPECT_EQ(answer, 0);
  EXPECT_EQ(lease().claim().ticket, mine.claim().ticket + 2) << "his grant is remembered";
}

TEST_F(LeaseFolder, AFileOfGrantsUnderMyNameStopsNobody) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become somebody else";
  EXPECT_EQ(as_nobody([&] {
              std::ofstream(directory_.path() / "0.grants") << "garbage";
              return 0;
            }),
            0);
  const Lease mine = lease();
  EXPECT_THAT(directory_.contents().grants, SizeIs(1));
}

// ---- What the folder holds ----

TEST_F(LeaseFolder, GarbageThatNobodyHoldsIsNoLease) {
  std::ofstream(directory_.path() / "a.lease") << "{\"schema\":1,\"id\":";
  std::ofstream(directory_.path() / "b.wait") << std::string(100'000, '\xff');
  std::ofstream(directory_.path() / "c.grants") << "1\t2\nx\t\t\n\n3\t4\tid\tGPU-0\t-5\n";
  std::ofstream(directory_.path() / "readme.txt") << "hello";
  std::filesystem::create_symlink("/dev/zero", directory_.path() / "d.lease");
  ASSERT_EQ(::mkfifo((directory_.path() / "e.lease").c_str(), 0644), 0);
  std::filesystem::create_directory(directory_.path() / "f.lease");
  const Contents now = directory_.contents();
  EXPECT_THAT(now.leases, IsEmpty());
  EXPECT_THAT(now.waiting, IsEmpty());
  EXPECT_THAT(now.grants, IsEmpty());
  EXPECT_THAT(now.riddles, IsEmpty());
}

TEST_F(LeaseFolder, ALeaseThatIsHeldButCannotBeReadIsARiddle) {
  for (const char* text : {"", "{", "[]", "{\"schema\":2}", "\xff\xfe"}) {
    const int file = detail::make_locked_file(directory_.path(), "a.lease", text);
    const Contents now = directory_.contents();
    EXPECT_THAT(now.riddles, SizeIs(1)) << text;
    EXPECT_THAT(now.warnings, ElementsAre(HasSubstr("a.lease"))) << text;
    ::close(file);
    sweep();
  }
}

TEST_F(LeaseFolder, HalfALineOfAKilledWriterSpoilsNoOther) {
  { const Lease mine = lease(); }
  const auto path = directory_.path() / (std::to_string(::geteuid()) + ".grants");
  std::ofstream(path, std::ios::app) << "99\t12";
  { const Lease mine = lease(); }
  EXPECT_THAT(directory_.contents().grants, SizeIs(2));
}

TEST_F(LeaseFolder, GrantsThatNobodyCountsAreForgotten) {
  const auto path = directory_.path() / (std::to_string(::geteuid()) + ".grants");
  {
    std::ofstream old(path);
    for (int i = 0; i < 2000; ++i) old << i << "\t1\t0000000" << i % 10 << "\tGPU-0\t5\n";
  }
  { const Lease mine = lease(); }
  EXPECT_THAT(directory_.contents().grants, SizeIs(1));
  EXPECT_EQ(directory_.contents().highest_ticket, 2000);
}

TEST_F(LeaseFolder, GrantsAreKeptForThoseWhoWaitedBefore) {
  const Place first = place();
  const auto path = directory_.path() / (std::to_string(::geteuid()) + ".grants");
  {
    std::ofstream old(path);
    for (int i = 2; i < 2000; ++i) old << i << "\t1\t0000000" << i % 10 << "\tGPU-0\t5\n";
  }
  const Lease mine = lease();
  EXPECT_THAT(directory_.contents().grants, SizeIs(1999));
}

// After a start of the machine its clock begins anew; and anybody may write any time.
TEST_F(LeaseFolder, GrantsOfATimeThatIsYetToComeDoNotCount) {
  const std::int64_t now = monotonic_ns();
  std::ofstream(directory_.path() / "77.grants")
      << "5\t" << now + 3'600'000'000'000 << "\t00000001\tGPU-0\t5\n"
      << "5\t" << now << "\t00000002\tGPU-0\t5\n";
  const Contents contents = directory_.contents();
  ASSERT_THAT(contents.grants, SizeIs(1));
  EXPECT_EQ(contents.grants[0].id, "00000002");
}

// ---- What others write ----

// One line of anybody's once made the next ticket too great to be read, and with it the lease a
// riddle that stopped everybody.
TEST_F(LeaseFolder, TheGreatestTicketStopsNobody) {
  std::ofstream(directory_.path() / "77.grants")
      << kMostTicket << "\t" << monotonic_ns() << "\t00000001\tGPU-0\t5\n";
  const Lease mine = lease();
  const Place first = place(), second = place();
  const Contents now = directory_.contents();
  EXPECT_THAT(now.riddles, IsEmpty());
  EXPECT_THAT(now.leases, SizeIs(1));
  ASSERT_THAT(now.waiting, SizeIs(2));
  EXPECT_EQ(now.waiting[0].ticket, now.waiting[1].ticket);
}

// The name of a lease is its file's: who wrote another's into his own once took its place in the
// sum of what is reserved.
TEST_F(LeaseFolder, NobodyTakesAnotherLeasesName) {
  const Lease mine = lease();
  std::string text = read_input(file_of(mine));
  const int file = detail::make_locked_file(directory_.path(), "0badc0de.lease", text);
  std::vector<std::string> ids;
  for (const Claim& claim : directory_.contents().leases) ids.push_back(claim.id);
  EXPECT_THAT(ids, UnorderedElementsAre(mine.claim().id, "0badc0de"));
  ::close(file);
}

// A command line of many files once made a file that nobody read to its end.
TEST_F(LeaseFolder, ALongCommandIsCutAndNoRiddle) {
  const Directory::Turn turn = directory_.take_turn();
  Claim claim;
  claim.command = "python train.py ";
  for (int i = 0; i < 100'000; ++i) claim.command += "\xc3\xa9";
  claim.shares = {{uuid_of(0), 1_GiB}};
  const Lease mine = turn.make_lease(claim, turn.contents());
  const Contents now = directory_.contents();
  ASSERT_THAT(now.leases, SizeIs(1));
  EXPECT_THAT(now.leases[0].command, StartsWith("python train.py \xc3\xa9"));
  EXPECT_EQ(now.leases[0].command.size(), 4096u);
}

TEST_F(LeaseFolder, NobodysWordsReachATerminalAsTheyAre) {
  const Lease mine = lease();
  std::string text = read_input(file_of(mine));
  text.replace(text.find("python"), 6, "\\u001b[2Jx\\u009b1m");
  const int file = detail::make_locked_file(directory_.path(), "0badc0de.lease", text);
  const Contents now = directory_.contents();
  ASSERT_THAT(now.leases, SizeIs(2));
  std::vector<std::string> commands;
  for (const Claim& claim : now.leases) commands.push_back(claim.command);
  EXPECT_THAT(commands, UnorderedElementsAre("python train.py", " [2Jx  1m train.py"));
  ::close(file);
}

TEST_F(LeaseFolder, AWarningNamesWhoseFileItIs) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become somebody else";
  Child nobody([&] {
    if (::setuid(65534) != 0) ::_exit(1);
    (void)detail::make_locked_file(directory_.path(), "a.lease", "garbage");
    (void)detail::make_locked_file(directory_.path(), "b.wait", "garbage");
  });
  ASSERT_TRUE(nobody.is_ready());
  EXPECT_THAT(directory_.contents().warnings,
              UnorderedElementsAre(HasSubstr("a.lease of " + user_name(65534)),
                                   HasSubstr("b.wait of " + user_name(65534))));
}

// It may not be asked whether anybody holds it; its owner hid it, and must not stop others by that.
TEST_F(LeaseFolder, AFileThatItsOwnerHidesIsSaidWithWhatToDoAndStopsNobody) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become somebody else";
  std::ofstream(directory_.path() / "a.lease") << "x";
  ::chmod((directory_.path() / "a.lease").c_str(), 0600);
  const int answer = as_nobody([&] {
    const Contents now = directory_.contents();
    if (!now.riddles.empty() || now.warnings.size() != 1) return 1;
    return now.warnings[0].find("a.lease of " + user_name(0)) != std::string::npos &&
                   now.warnings[0].find("chmod 644") != std::string::npos
               ? 0
               : 2;
  });
  EXPECT_EQ(answer, 0);
}

TEST_F(LeaseFolder, AFolderThatMayNotBeReadIsSaidWithWhatToDo) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become somebody else";
  std::filesystem::permissions(directory_.path(), std::filesystem::perms(0700));
  const int answer = as_nobody([&] {
    try {
      static_cast<void>(directory_.contents());
    } catch (const BusyError& error) {
      return std::string(error.what()).find("chmod 1777") != std::string::npos ? 0 : 1;
    }
    return 2;
  });
  EXPECT_EQ(answer, 0);
}

// A pipe under the name of my file of grants, or a file that its maker could empty again.
TEST_F(LeaseFolder, NothingOfOthersUnderMyNameIsWrittenInto) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become somebody else";
  const std::filesystem::path name = directory_.path() / "65534.grants";
  for (const bool pipe : {true, false}) {
    if (pipe) {
      ASSERT_EQ(::mkfifo(name.c_str(), 0666), 0);
    } else {
      std::ofstream(name) << "";
    }
    ::chmod(name.c_str(), 0666);
    EXPECT_EQ(as_nobody([&] {
                const Lease his = lease();
                return directory_.contents().grants.size() == 1 ? 0 : 1;
              }),
              0);
    if (!pipe) {
      EXPECT_EQ(read_input(name), "");
    }
    for (const auto& entry : std::filesystem::directory_iterator(directory_.path()))
      std::filesystem::remove(entry.path());
  }
}

// Each container counts its processes from 1: a dead one's file may have the very name.
TEST_F(LeaseFolder, ATemporaryFileOfTheDeadIsInNobodysWay) {
  static std::filesystem::path folder;
  static std::string temporary;
  folder = directory_.path();
  detail::at_point = [](detail::Point point) {
    if (point != detail::Point::file_made) return;
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      temporary = entry.path().filename().string();
  };
  ::close(detail::make_locked_file(folder, "x.lease", "x"));
  detail::at_point = nullptr;
  ASSERT_THAT(temporary, StartsWith("x.lease." + std::to_string(::getpid()) + "-"));
  const std::size_t dash = temporary.rfind('-');
  const int number = std::stoi(temporary.substr(dash + 1));
  for (int next = number + 1; next < number + 5; ++next)
    std::ofstream(folder /
                  ("y.lease" + temporary.substr(7, dash - 6) + std::to_string(next) + ".tmp"))
        << "";
  const int file = detail::make_locked_file(folder, "y.lease", "y");
  EXPECT_TRUE(detail::is_locked(folder / "y.lease"));
  ::close(file);
}

// The first user could make only the second folder; root, who can make both, once made the first,
// and from then on neither knew of the other's leases.
TEST_F(LeaseFolder, TheOneThatIsThereIsTakenBeforeOneIsMade) {
  const auto better = folder_.path() / "better";
  EXPECT_EQ(Directory::open({better, directory_.path()}).path(), directory_.path());
  EXPECT_FALSE(std::filesystem::exists(better));
  EXPECT_EQ(Directory::open({better, folder_.path() / "none"}).path(), better);
  EXPECT_EQ(Directory::open({better, directory_.path()}).path(), better) << "both are there";
}

// In a container whose own files are on FUSE there is still /dev/shm.
TEST_F(LeaseFolder, OneOnAFileSystemThatCarriesNoneIsPassedOverForAnother) {
  EXPECT_EQ(Directory::open({"/proc/headroom", directory_.path()}).path(), directory_.path());
  EXPECT_EQ(Directory::existing({"/proc/self", directory_.path()})->path(), directory_.path());
  EXPECT_FALSE(Directory::existing({"/proc/headroom"}));
}

// ---- Waiting ----

TEST_F(LeaseFolder, WhoWaitsSaysInWhichNamespaceItsNumberCounts) {
  const Place mine = place();
  const Waiter waiter = directory_.contents().waiting.at(0);
  EXPECT_EQ(waiter.id, mine.id());
  EXPECT_TRUE(is_this_pid_namespace(waiter.pid_namespace));
  EXPECT_FALSE(is_this_pid_namespace(0)) << "where it is not told";
}

// As an earlier version wrote it.
TEST_F(LeaseFolder, AWaiterWithoutANamespaceIsNobodyHere) {
  const Place mine = place();
  std::string text = read_input(only_wait_file(directory_));
  const std::size_t at = text.find(",\"pid_namespace\":");
  text.erase(at, text.find_first_of(",}", at + 1) - at);
  const int file = detail::make_locked_file(directory_.path(), "0badc0de.wait", text);
  const Contents now = directory_.contents();
  ASSERT_THAT(now.waiting, SizeIs(2));
  for (const Waiter& waiter : now.waiting)
    EXPECT_EQ(is_this_pid_namespace(waiter.pid_namespace), waiter.id == mine.id());
  ::close(file);
}

TEST_F(LeaseFolder, ABirthIsTheKernelsWord) {
  const WallTime before = std::chrono::system_clock::now() - std::chrono::seconds(1);
  const Place mine = place();
  set_time(only_wait_file(directory_), {.tv_sec = 5, .tv_nsec = 0});
  const auto born = directory_.contents().waiting.at(0).born;
  if (!born) GTEST_SKIP() << "this file system notes no births";
  EXPECT_GE(*born, before);
}

// Its touches may be set ahead: so much would keep a stopped one's place for ever.
TEST_F(LeaseFolder, WhoTouchedItsFileInTheFutureIsNotLooking) {
  const Place mine = place();
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  time.tv_sec += 5;
  set_time(only_wait_file(directory_), time);
  EXPECT_FALSE(directory_.contents().waiting.at(0).looking);
}

TEST_F(LeaseFolder, PlacesAreInTheOrderOfTheirTickets) {
  const Place first = place();
  const Place second = place();
  EXPECT_LT(first.ticket(), second.ticket());
  const Contents now = directory_.contents();
  ASSERT_THAT(now.waiting, SizeIs(2));
  EXPECT_EQ(now.waiting[0].ticket, first.ticket());
  EXPECT_EQ(now.waiting[0].wish.need, 3_GiB);
  EXPECT_EQ(now.waiting[0].wish.count, 2);
  EXPECT_EQ(now.waiting[0].wish.cards, (std::vector{uuid_of(0), uuid_of(1)}));
  EXPECT_TRUE(now.waiting[0].looking);
}

TEST_F(LeaseFolder, APlaceEndsWithItsProcess) {
  Child child([&] { static_cast<void>(new Place(place())); });
  ASSERT_TRUE(child.is_ready());
  EXPECT_THAT(directory_.contents().waiting, SizeIs(1));
  child.kill();
  EXPECT_THAT(directory_.contents().waiting, IsEmpty());
}

TEST_F(LeaseFolder, WhoHasNotLookedForTenSecondsIsNotLooking) {
  const Place mine = place();
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  time.tv_sec -= 11;
  set_time(only_wait_file(directory_), time);
  EXPECT_FALSE(directory_.contents().waiting.at(0).looking);
  mine.touch();
  EXPECT_TRUE(directory_.contents().waiting.at(0).looking);
}

// The time of the file is not the wall clock's, which somebody may set.
TEST_F(LeaseFolder, ClockJumpsStopNobody) {
  const Place mine = place();
  struct stat facts {};
  ASSERT_EQ(::stat(only_wait_file(directory_).c_str(), &facts), 0);
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  EXPECT_LE(std::abs(now.tv_sec - facts.st_mtim.tv_sec), 5);
}

// ---- Turns ----

TEST_F(LeaseFolder, ATurnThatDoesNotComeNamesWhoHasIt) {
  Child child([&] { static_cast<void>(new Directory::Turn(directory_.take_turn())); });
  ASSERT_TRUE(child.is_ready());
  try {
    static_cast<void>(directory_.take_turn(Seconds(0.05)));
    FAIL() << "two turns at once";
  } catch (const BusyError& error) {
    EXPECT_THAT(error.what(), HasSubstr("PID " + std::to_string(child.pid())));
  }
  child.kill();
  static_cast<void>(directory_.take_turn());  // its turn ended with it
}

TEST_F(LeaseFolder, ATurnEndsThoughAForkedProcessHasItsDescriptor) {
  std::optional<Directory::Turn> turn(directory_.take_turn());
  Child child([] {});
  ASSERT_TRUE(child.is_ready());
  turn.reset();
  static_cast<void>(directory_.take_turn(Seconds(1)));
}

// ---- Where nothing can be written ----

TEST_F(LeaseFolder, AFullDiskIsAWriteErrorAndLeavesNothing) {
  {
    const FileSizeLimit full(10);
    EXPECT_THROW(lease(), WriteError);
  }
  EXPECT_THAT(files(), IsEmpty());
  EXPECT_THAT(directory_.contents().leases, IsEmpty());
}

TEST_F(LeaseFolder, AFolderThatMayNotBeWrittenIsAWriteErrorAndCanBeLookedAt) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become somebody else";
  const Lease mine = lease();
  std::filesystem::permissions(directory_.path(), std::filesystem::perms(0755));
  const int answer = as_nobody([&] {
    if (directory_.contents().leases.size() != 1) return 1;
    try {
      static_cast<void>(lease());
    } catch (const WriteError&) {
      return 0;
    }
    return 2;
  });
  EXPECT_EQ(answer, 0);
  EXPECT_THAT(directory_.warnings(), ElementsAre(HasSubstr("1777")));
}

TEST_F(LeaseFolder, IsMadeForAllUsers) {
  struct stat facts {};
  ASSERT_EQ(::stat(directory_.path().c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 07777, 01777u);
}

TEST_F(LeaseFolder, AFileInItsPlaceIsRefused) {
  EXPECT_THROW(static_cast<void>(Directory::at(folder_.write("file", "x"))), WriteError);
  std::filesystem::create_symlink(directory_.path(), folder_.path() / "link");
  EXPECT_THROW(static_cast<void>(Directory::at(folder_.path() / "link")), WriteError);
}

// statfs(2)'s numbers.
TEST(LeaseFileSystem, NetworkOnesAndUnknownOnesCarryNoLeases) {
  for (const long long kind :
       {0x6969LL /* NFS */, 0xFF534D42LL /* CIFS */, 0xFE534D42LL /* SMB2 */,
        0x00C36400LL /* Ceph */, 0x0BD00BD0LL /* Lustre */, 0x47504653LL /* GPFS */,
        0x01021997LL /* 9P */, 0x65735546LL /* FUSE */, 0x01161970LL /* GFS2 */, 0LL, -1LL})
    EXPECT_FALSE(detail::carries_leases(kind)) << std::hex << kind;
}

TEST(LeaseFileSystem, LocalOnesDo) {
  for (const long long kind :
       {0x01021994LL /* tmpfs */, 0xEF53LL /* ext4 */, 0x58465342LL /* xfs */,
        0x9123683ELL /* btrfs */, 0x2FC12FC1LL /* zfs */, 0xF2F52010LL /* f2fs */,
        0x794C7630LL /* overlay */, 0xCA451A4ELL /* bcachefs */})
    EXPECT_TRUE(detail::carries_leases(kind)) << std::hex << kind;
  EXPECT_TRUE(detail::carries_leases(static_cast<int>(0x9123683E))) << "with its sign";
}

TEST(LeaseFileSystem, HaveNames) {
  EXPECT_EQ(detail::file_system_name(0x6969), "NFS");
  EXPECT_EQ(detail::file_system_name(static_cast<int>(0xFF534D42)), "CIFS") << "with its sign";
  EXPECT_THAT(detail::file_system_name(0x01161970), HasSubstr("0x1161970"));
}

std::string refusal(const std::filesystem::path& folder) {
  try {
    detail::require_local_file_system(folder);
  } catch (const UnavailableError& error) {
    return error.what();
  }
  return "";
}

TEST(LeaseFileSystem, OneThatCannotBeAskedIsRefusedWithTheReason) {
  EXPECT_THAT(refusal("/no/such/folder"), HasSubstr("No such file or directory"));
  EXPECT_THAT(refusal("/proc"), HasSubstr("unknown kind 0x9fa0"));
  EXPECT_EQ(refusal(TemporaryFolder().path()), "");
}

// Sets the variable for as long as this lives.
class LeaseDir {
 public:
  explicit LeaseDir(const std::string& folder) {
    ::setenv("HEADROOM_LEASE_DIR", folder.c_str(), 1);
  }
  ~LeaseDir() {
    if (before_)
      ::setenv("HEADROOM_LEASE_DIR", before_->c_str(), 1);
    else
      ::unsetenv("HEADROOM_LEASE_DIR");
  }
  LeaseDir(const LeaseDir&) = delete;
  LeaseDir& operator=(const LeaseDir&) = delete;

 private:
  const std::optional<std::string> before_ = environment("HEADROOM_LEASE_DIR");
};

TEST(LeaseFileSystem, ThatCarriesNoneIsRefusedToThoseWhoOnlyLook) {
  const LeaseDir proc("/proc");
  EXPECT_THROW(static_cast<void>(Directory::existing()), UnavailableError);
  EXPECT_THROW(static_cast<void>(Directory::open()), UnavailableError);
}

}  // namespace
}  // namespace headroom::lease
