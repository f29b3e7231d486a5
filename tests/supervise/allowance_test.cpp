// What a process may have of a card by its lease, and a lease that follows what it needs.
#include "headroom/supervise/allowance.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "headroom/base/process.h"
#include "headroom/gpu/simulated.h"
#include "tests/lease/fixtures/children.h"
#include "tests/support/temporary_folder.h"

namespace headroom::supervise {
namespace {

using namespace headroom::literals;
using headroom::testing::TemporaryFolder;
using lease::fixtures::Child;

// A shared box of one card of 1200 MiB.
class AllowanceTest : public ::testing::Test {
 protected:
  AllowanceTest() {
    ::setenv("HEADROOM_STATE_DIR", (folder_.path() / "state").c_str(), 1);
    ::setenv("HEADROOM_LEASE_DIR", (folder_.path() / "leases").c_str(), 1);
    ::unsetenv("HEADROOM_LEASE");
    uses(this_process(), 0_MiB);
  }
  ~AllowanceTest() override {
    for (const char* name : {"HEADROOM_STATE_DIR", "HEADROOM_LEASE_DIR", "HEADROOM_LEASE"})
      ::unsetenv(name);
  }
  void uses(const ProcessIdentity& process, Bytes bytes) const {
    folder_.write("state/boxes/lab.json",
                  "{\"cards\":[{\"total_bytes\":1258291200}],\"shares\":[{\"pid\":" +
                      std::to_string(process.pid) +
                      ",\"start_ticks\":" + std::to_string(process.start_ticks) +
                      ",\"card\":0,\"used_bytes\":" + std::to_string(bytes.count) + "}]}");
  }
  lease::Lease lease_of(Bytes bytes) const {
    const lease::Directory directory = lease::Directory::open();
    const lease::Directory::Turn turn = directory.take_turn();
    lease::Claim claim;
    claim.shares = {{card_, bytes}};
    return turn.make_lease(std::move(claim), turn.contents());
  }
  // The lease of another process.
  std::unique_ptr<Child> holder(Bytes bytes) const {
    return std::make_unique<Child>([=, this] { new lease::Lease(lease_of(bytes)); });
  }
  static Bytes reserved() {
    Bytes sum{0};
    for (const lease::Claim& one : lease::Directory::open().contents().leases)
      for (const lease::Share& share : one.shares) sum += share.reserved;
    return sum;
  }
  // For an Allowance, which owns the descriptor that it is given.
  std::optional<Allowance> allowance(const lease::Lease& lease) const {
    return Allowance::find(devices_, ::dup(lease.descriptor()));
  }

  TemporaryFolder folder_;
  const gpu::Devices devices_ = gpu::parse_devices("sim:1x1200MiB@lab");
  const gpu::Uuid card_ = gpu::make_simulated_source(devices_.box)->open().cards.at(0).uuid;
};

// A training planned with the card's free memory and took what a job had reserved and not used yet:
// that one died of an out-of-memory inside its own lease.
TEST_F(AllowanceTest, IsNoMoreThanOthersHaveLeftOfTheCard) {
  const auto other = holder(900_MiB);
  const lease::Lease mine = lease_of(200_MiB);
  auto allowance = this->allowance(mine);
  ASSERT_TRUE(allowance);
  const Allowance::OnCard now = allowance->on(card_, 0_MiB);
  EXPECT_EQ(now.reserved, 200_MiB);
  EXPECT_EQ(now.most, 300_MiB) << "the lease, and what it can grow by";
}

TEST_F(AllowanceTest, CountsWhatTheProcessHoldsAlready) {
  const auto other = holder(900_MiB);
  const lease::Lease mine = lease_of(200_MiB);
  uses(this_process(), 150_MiB);
  auto allowance = this->allowance(mine);
  EXPECT_EQ(allowance->on(card_, 150_MiB).used, 150_MiB);
  EXPECT_EQ(allowance->on(card_, 150_MiB).most, 300_MiB);
}

TEST_F(AllowanceTest, ItsOwnLeaseGrowsAndShrinks) {
  const auto other = holder(900_MiB);
  const lease::Lease mine = lease_of(200_MiB);
  auto allowance = this->allowance(mine);
  EXPECT_TRUE(allowance->reserve(card_, 300_MiB, 0_MiB));
  EXPECT_EQ(reserved(), 1200_MiB);
  EXPECT_FALSE(allowance->reserve(card_, 301_MiB, 0_MiB)) << "the other's";
  EXPECT_EQ(reserved(), 1200_MiB);
  EXPECT_TRUE(allowance->reserve(card_, 50_MiB, 0_MiB));
  EXPECT_EQ(reserved(), 950_MiB);
  EXPECT_EQ(allowance->on(card_, 0_MiB).most, 300_MiB) << "it may come back";
}

TEST_F(AllowanceTest, EarlierWaitersGoBeforeAGrowingLease) {
  const lease::Lease mine = lease_of(200_MiB);
  const lease::Directory directory = lease::Directory::open();
  lease::Waiter waiter;
  waiter.wish = {.need = 600_MiB, .count = 1, .cards = {card_}};
  const auto place = [&] {
    const lease::Directory::Turn turn = directory.take_turn();
    return turn.join_queue(waiter, turn.contents());
  }();
  auto allowance = this->allowance(mine);
  EXPECT_EQ(allowance->on(card_, 0_MiB).most, 600_MiB);
  EXPECT_FALSE(allowance->reserve(card_, 601_MiB, 0_MiB));
}

TEST_F(AllowanceTest, AnOuterLeaseIsTheLimitAndStaysAsItIs) {
  const lease::Lease outer = lease_of(300_MiB);  // this process holds it, as its starter would
  ::setenv("HEADROOM_LEASE", outer.claim().id.c_str(), 1);
  auto allowance = Allowance::find(devices_, {});
  ASSERT_TRUE(allowance);
  EXPECT_TRUE(allowance->is_fixed());
  EXPECT_EQ(allowance->on(card_, 0_MiB).most, 300_MiB);
  EXPECT_TRUE(allowance->reserve(card_, 100_MiB, 0_MiB));
  EXPECT_FALSE(allowance->reserve(card_, 301_MiB, 0_MiB));
  EXPECT_EQ(reserved(), 300_MiB);
}

// `headroom lease end` said that the job is told, and its log never said so.
TEST_F(AllowanceTest, TellsOnceThatItsLeaseWasEnded) {
  const lease::Lease mine = lease_of(200_MiB);
  auto allowance = this->allowance(mine);
  EXPECT_FALSE(allowance->news());
  {
    const lease::Directory directory = lease::Directory::open();
    directory.take_turn().end_lease(mine.claim());
  }
  EXPECT_NE(allowance->news().value_or("").find("was ended by"), std::string::npos);
  EXPECT_FALSE(allowance->news());
  EXPECT_FALSE(allowance->reserve(card_, 1300_MiB, 0_MiB));
  EXPECT_EQ(allowance->on(card_, 0_MiB).most, 1200_MiB) << "what is left of the card";
}

TEST_F(AllowanceTest, WithoutALeaseThereIsNone) {
  EXPECT_FALSE(Allowance::find(devices_, {}));
  static_cast<void>(lease::Directory::open());
  EXPECT_FALSE(Allowance::find(devices_, {}));
}

}  // namespace
}  // namespace headroom::supervise
