// Reading the folder: garbage, old grants, and what other users write into it.

#include "headroom/lease/detail/folder_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/lease/detail/locked_file.h"
#include "headroom/lease/detail/point.h"
#include "tests/lease/fixtures/children.h"
#include "tests/lease/fixtures/lease_folder.h"

namespace headroom::lease {
namespace {

using namespace fixtures;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

TEST_F(LeaseFolder, GarbageWithoutALockIsNoLease) {
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
  EXPECT_THAT(now.unreadable_leases, IsEmpty());
}

TEST_F(LeaseFolder, AHeldLeaseWithAnInvalidTextIsUnreadable) {
  for (const char* text : {"", "{", "[]", "{\"schema\":2}", "\xff\xfe"}) {
    const int file = detail::make_locked_file(directory_.path(), "a.lease", text);
    const Contents now = directory_.contents();
    EXPECT_THAT(now.unreadable_leases, SizeIs(1)) << text;
    EXPECT_THAT(now.warnings, ElementsAre(HasSubstr("a.lease"))) << text;
    ::close(file);
    sweep();
  }
}

TEST_F(LeaseFolder, HalfALineOfAKilledWriterDoesNotSpoilTheNext) {
  { const Lease mine = lease(); }
  const auto path = directory_.path() / (std::to_string(::geteuid()) + ".grants");
  std::ofstream(path, std::ios::app) << "99\t12";
  { const Lease mine = lease(); }
  EXPECT_THAT(directory_.contents().grants, SizeIs(2));
}

TEST_F(LeaseFolder, GrantsThatNoWaiterCountsAreDropped) {
  const auto path = directory_.path() / (std::to_string(::geteuid()) + ".grants");
  {
    std::ofstream old(path);
    for (int i = 0; i < 2000; ++i) old << i << "\t1\t0000000" << i % 10 << "\tGPU-0\t5\n";
  }
  { const Lease mine = lease(); }
  EXPECT_THAT(directory_.contents().grants, SizeIs(1));
  EXPECT_EQ(directory_.contents().highest_ticket, 2000);
}

TEST_F(LeaseFolder, GrantsAreKeptForEarlierWaiters) {
  const PlaceInQueue first = place();
  const auto path = directory_.path() / (std::to_string(::geteuid()) + ".grants");
  {
    std::ofstream old(path);
    for (int i = 2; i < 2000; ++i) old << i << "\t1\t0000000" << i % 10 << "\tGPU-0\t5\n";
  }
  const Lease mine = lease();
  EXPECT_THAT(directory_.contents().grants, SizeIs(1999));
}

// The clock restarts with the machine, and any user may write any time.
TEST_F(LeaseFolder, GrantsInTheFutureDoNotCount) {
  const std::int64_t now = monotonic_ns();
  std::ofstream(directory_.path() / "77.grants")
      << "5\t" << now + 3'600'000'000'000 << "\t00000001\tGPU-0\t5\n"
      << "5\t" << now << "\t00000002\tGPU-0\t5\n";
  const Contents contents = directory_.contents();
  ASSERT_THAT(contents.grants, SizeIs(1));
  EXPECT_EQ(contents.grants[0].id, "00000002");
}

// ---- What others write ----

// One line of any user once made the next ticket too large to be read, and the unreadable lease
// then blocked all users.
TEST_F(LeaseFolder, TheGreatestTicketBlocksNoOther) {
  std::ofstream(directory_.path() / "77.grants")
      << kMostTicket << "\t" << monotonic_ns() << "\t00000001\tGPU-0\t5\n";
  const Lease mine = lease();
  const PlaceInQueue first = place(), second = place();
  const Contents now = directory_.contents();
  EXPECT_THAT(now.unreadable_leases, IsEmpty());
  EXPECT_THAT(now.leases, SizeIs(1));
  ASSERT_THAT(now.waiting, SizeIs(2));
  EXPECT_EQ(now.waiting[0].ticket, now.waiting[1].ticket);
}

// A lease's name is its file's name: a file with another lease's name once replaced that lease in
// the sum of reservations.
TEST_F(LeaseFolder, ALeaseCannotTakeAnotherLeasesName) {
  const Lease mine = lease();
  std::string text = read_input(file_of(mine));
  const int file = detail::make_locked_file(directory_.path(), "0badc0de.lease", text);
  std::vector<std::string> ids;
  for (const Claim& claim : directory_.contents().leases) ids.push_back(claim.id);
  EXPECT_THAT(ids, UnorderedElementsAre(mine.claim().id, "0badc0de"));
  ::close(file);
}

// A long command line once made a file longer than readers read.
TEST_F(LeaseFolder, ALongCommandIsCutAndStaysReadable) {
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

TEST_F(LeaseFolder, ControlCharactersOfOthersDoNotReachATerminal) {
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

TEST_F(LeaseFolder, AWarningNamesTheFilesOwner) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
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

// Its lock cannot be tested, because its owner hid it; it must not block other users.
TEST_F(LeaseFolder, AHiddenFileIsReportedWithAdviceAndBlocksNoOther) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  std::ofstream(directory_.path() / "a.lease") << "x";
  ::chmod((directory_.path() / "a.lease").c_str(), 0600);
  const int answer = as_nobody([&] {
    const Contents now = directory_.contents();
    if (!now.unreadable_leases.empty() || now.warnings.size() != 1) return 1;
    return now.warnings[0].find("a.lease of " + user_name(0)) != std::string::npos &&
                   now.warnings[0].find("chmod 644") != std::string::npos
               ? 0
               : 2;
  });
  EXPECT_EQ(answer, 0);
}

TEST_F(LeaseFolder, AnUnreadableFolderIsReportedWithAdvice) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
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
TEST_F(LeaseFolder, AFileOfAnotherUserUnderMyNameIsNotWritten) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const std::filesystem::path name = directory_.path() / "65534.grants";
  for (const bool pipe : {true, false}) {
    if (pipe) {
      ASSERT_EQ(::mkfifo(name.c_str(), 0666), 0);
    } else {
      std::ofstream(name) << "";
    }
    ::chmod(name.c_str(), 0666);
    EXPECT_EQ(as_nobody([&] {
                const Lease other = lease();
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
TEST_F(LeaseFolder, ATemporaryFileOfADeadProcessDoesNotBlock) {
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

}  // namespace
}  // namespace headroom::lease
