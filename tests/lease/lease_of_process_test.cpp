// Whose lease a process's memory belongs to.

#include "headroom/lease/lease_of_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "headroom/lease/directory.h"
#include "tests/gpu/fixtures/cards.h"
#include "tests/lease/fixtures/children.h"
#include "tests/lease/fixtures/shared_card.h"
#include "tests/support/temporary_folder.h"

namespace headroom::lease {
namespace {

using namespace fixtures;
using headroom::testing::TemporaryFolder;

class LeaseAttribution : public ::testing::Test {
 protected:
  Lease lease(int card = 0) {
    const Directory::Turn turn = directory_.take_turn();
    Claim claim;
    claim.shares = {{uuid_of(card), 8_GiB}};
    return turn.make_lease(claim, turn.contents());
  }
  // As the driver lists it.
  static gpu::GpuProcess listed(pid_t pid) {
    gpu::GpuProcess process = gpu::fixtures::process(pid, 5_GiB);
    if (const auto stat = ProcessTable().stat(pid))
      process.start_ticks = stat->identity.start_ticks;
    return process;
  }
  std::string lease_of(pid_t pid, int card = 0) {
    const auto leases = directory_.contents().leases;
    return Attribution(leases).lease_of(listed(pid), uuid_of(card));
  }

  TemporaryFolder folder_;
  Directory directory_ = Directory::at(folder_.path() / "leases");
};

TEST_F(LeaseAttribution, TheProcessThatMadeTheLeaseBelongsToIt) {
  const Lease mine = lease();
  EXPECT_EQ(lease_of(::getpid()), mine.claim().id);
}

TEST_F(LeaseAttribution, AChildThatClosedTheDescriptorBelongsToTheLease) {
  const Lease mine = lease();
  Child child([&] { ::close(mine.descriptor()); });
  EXPECT_EQ(lease_of(child.pid()), mine.claim().id);
}

// The lease was once credited with the memory of a reader of its file, and that memory was promised
// again.
TEST_F(LeaseAttribution, AReaderOfTheFileDoesNotHoldTheLease) {
  const auto reads = [this](const Claim& claim) {
    (void)::open((directory_.path() / (claim.id + ".lease")).c_str(), O_RDONLY);
  };
  const Lease mine = lease();
  Child reader([&] {
    ::close(mine.descriptor());
    reads(mine.claim());
  });
  EXPECT_EQ(descriptor_holders(directory_.contents().leases).at(mine.claim().id),
            std::vector{::getpid()});
}

// Its parent, which made the lease, has died; the inherited descriptor proves the lease.
TEST_F(LeaseAttribution, AnOrphanWithTheDescriptorBelongsToTheLease) {
  std::array<int, 2> tell{};
  ASSERT_EQ(::pipe(tell.data()), 0);
  pid_t orphan = 0;
  const pid_t owner = ::fork();
  if (owner == 0) {
    new Lease(lease());
    orphan = ::fork();
    if (orphan != 0) {
      (void)!::write(tell[1], &orphan, sizeof orphan);
      ::_exit(0);
    }
    ::pause();
  }
  ASSERT_EQ(::read(tell[0], &orphan, sizeof orphan), static_cast<ssize_t>(sizeof orphan));
  ::waitpid(owner, nullptr, 0);
  const auto leases = directory_.contents().leases;
  ASSERT_EQ(leases.size(), 1u);
  EXPECT_EQ(lease_of(orphan), leases[0].id);
  EXPECT_EQ(descriptor_holders(leases)[leases[0].id], std::vector{orphan});
  ::kill(orphan, SIGKILL);
  ::close(tell[0]);
  ::close(tell[1]);
}

TEST_F(LeaseAttribution, AStrangerBelongsToNoLease) {
  Child stranger([] {});
  Child owner([&] { new Lease(lease()); });
  EXPECT_EQ(lease_of(stranger.pid()), "");
  EXPECT_NE(lease_of(owner.pid()), "");
}

TEST_F(LeaseAttribution, ALeaseOfAnotherCardDoesNotCount) {
  const Lease mine = lease(1);
  EXPECT_EQ(lease_of(::getpid(), 0), "");
  EXPECT_EQ(lease_of(::getpid(), 1), mine.claim().id);
}

// Whichever were chosen, the other might be owed what the process uses.
TEST_F(LeaseAttribution, AProcessOfTwoLeasesBelongsToNone) {
  const Lease first = lease(), second = lease();
  EXPECT_EQ(lease_of(::getpid()), "");
}

TEST_F(LeaseAttribution, TheNearestAncestorDecides) {
  const Lease outer = lease();
  std::string inner;
  Child child([&] {
    ::close(outer.descriptor());
    new Lease(lease());
  });
  ASSERT_TRUE(child.is_ready());
  for (const Claim& claim : directory_.contents().leases)
    if (claim.id != outer.claim().id) inner = claim.id;
  EXPECT_EQ(lease_of(child.pid()), inner);
  EXPECT_EQ(lease_of(::getpid()), outer.claim().id);
}

TEST_F(LeaseAttribution, AReusedNumberIsNotTheOwner) {
  const Lease mine = lease();
  auto leases = directory_.contents().leases;
  Child child([&] { ::close(mine.descriptor()); });
  leases[0].owner = {child.pid(), 12345};  // started at another time
  leases[0].file = {};
  Attribution attribution(leases);
  EXPECT_EQ(attribution.lease_of(listed(child.pid()), uuid_of(0)), "");
}

TEST_F(LeaseAttribution, AProcessWithTheNumberOfAListedOneIsNotIt) {
  const Lease mine = lease();
  gpu::GpuProcess process = listed(::getpid());
  process.start_ticks -= 1;
  const auto leases = directory_.contents().leases;
  EXPECT_EQ(Attribution(leases).lease_of(process, uuid_of(0)), "");
}

TEST_F(LeaseAttribution, NumbersOfAnotherNamespaceAreNotValidHere) {
  const Lease mine = lease();
  auto leases = directory_.contents().leases;
  leases[0].pid_namespace = 1;
  leases[0].file = {};
  EXPECT_EQ(Attribution(leases).lease_of(listed(::getpid()), uuid_of(0)), "");
}

// A file of any user on another file system may have the same inode number as the lease.
TEST_F(LeaseAttribution, AFileOfAnotherFileSystemWithTheSameNumberIsNotTheLease) {
  Child owner([&] { new Lease(lease()); });
  ASSERT_TRUE(owner.is_ready());
  const std::string path = (folder_.path() / "other.lease").string();
  const int other = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  struct stat facts {};
  ASSERT_EQ(::fstat(other, &facts), 0);
  auto leases = directory_.contents().leases;
  leases[0].file.inode = facts.st_ino;
  leases[0].file.device += 1;
  EXPECT_EQ(Attribution(leases).lease_of(listed(::getpid()), uuid_of(0)), "");
  leases[0].file.device -= 1;
  EXPECT_EQ(Attribution(leases).lease_of(listed(::getpid()), uuid_of(0)), leases[0].id);
  ::close(other);
}

TEST_F(LeaseAttribution, AUserCannotClaimAnotherUsersProcess) {
  const Lease mine = lease();
  auto leases = directory_.contents().leases;
  leases[0].uid = ::geteuid() + 1;  // a file of another user that names our process
  leases[0].file = {};
  EXPECT_EQ(Attribution(leases).lease_of(listed(::getpid()), uuid_of(0)), "");
}

}  // namespace
}  // namespace headroom::lease
