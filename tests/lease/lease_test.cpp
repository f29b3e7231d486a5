// The life of a lease: what keeps it alive, what ends it, and the limits for other users.

#include "headroom/lease/lease.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/lease/detail/locked_file.h"
#include "headroom/lease/detail/point.h"
#include "tests/gpu/fixtures/eventually.h"
#include "tests/lease/fixtures/children.h"
#include "tests/lease/fixtures/lease_folder.h"

namespace headroom::lease {
namespace {

using namespace fixtures;
using headroom::gpu::fixtures::eventually;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST_F(LeaseFolder, ALeaseReadsBackAsMade) {
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

// A training that reserved memory for its plain batch kept all of it, although its plan used half.
TEST_F(LeaseFolder, ALeaseCanChangeItsShares) {
  Lease mine = lease();
  const std::string id = mine.claim().id;
  {
    const Directory::Turn turn = directory_.take_turn();
    turn.change_lease(mine, {{uuid_of(0), 3_GiB}, {uuid_of(1), 1_GiB}});
  }
  const Contents now = directory_.contents();
  ASSERT_THAT(now.leases, SizeIs(1));
  EXPECT_EQ(now.leases[0].id, id);
  EXPECT_EQ(reserved_on(now.leases[0], uuid_of(0)), 3_GiB);
  EXPECT_EQ(reserved_on(now.leases[0], uuid_of(1)), 1_GiB);
  EXPECT_EQ(now.leases[0].file, mine.claim().file);
  EXPECT_THAT(files(), SizeIs(1)) << "and no temporary one";
}

TEST_F(LeaseFolder, AnEndedLeaseCannotChange) {
  Lease mine = lease();
  const Directory::Turn turn = directory_.take_turn();
  turn.end_lease(mine.claim());
  EXPECT_THROW(turn.change_lease(mine, {{uuid_of(0), 1_GiB}}), UsageError);
  EXPECT_THAT(turn.contents().leases, IsEmpty());
}

// headroom-engine continues the lease of the `headroom train` that became it.
TEST_F(LeaseFolder, AnInheritedDescriptorIsTheLeaseAgain) {
  Lease made = lease();
  const Claim claim = directory_.contents().leases.at(0);
  const auto path = directory_.path() / (claim.id + ".lease");
  const int descriptor = ::dup(made.descriptor());
  auto again = Lease::inherited(claim, descriptor, path);
  ASSERT_TRUE(again);
  made = std::move(*again);
  EXPECT_THAT(directory_.contents().leases, SizeIs(1));
  EXPECT_FALSE(Lease::inherited(claim, STDIN_FILENO, path));
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

TEST_F(LeaseFolder, AStartedProgramInheritsTheLease) {
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

// Process numbers prove nothing either way: a lease can be over although its process number is
// alive, and held although its named owner never existed.
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

TEST_F(LeaseFolder, AProcessThatDiesWhileMakingALeaseLeavesNone) {
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
    EXPECT_THAT(directory_.contents().unreadable_leases, IsEmpty()) << point;
    sweep();  // takes a turn: the dead one's is over
    EXPECT_THAT(files(), IsEmpty()) << point;
  }
}

// ---- Other users ----

TEST_F(LeaseFolder, AnotherUserCannotChangeOrRemoveALease) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
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

TEST_F(LeaseFolder, AnotherUserCannotKeepALeaseAlive) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
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
  // The other user can still take a reader's lock, which does not count.
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
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const Lease mine = lease();
  const int answer = as_nobody([&] {
    const Lease other = lease();
    return other.claim().ticket == mine.claim().ticket + 1 ? 0 : 1;
  });
  EXPECT_EQ(answer, 0);
  EXPECT_EQ(lease().claim().ticket, mine.claim().ticket + 2)
      << "the other user's grant is remembered";
}

TEST_F(LeaseFolder, AFileOfGrantsUnderMyNameBlocksNoLease) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  EXPECT_EQ(as_nobody([&] {
              std::ofstream(directory_.path() / "0.grants") << "garbage";
              return 0;
            }),
            0);
  const Lease mine = lease();
  EXPECT_THAT(directory_.contents().grants, SizeIs(1));
}

}  // namespace
}  // namespace headroom::lease
