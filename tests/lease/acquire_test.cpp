// Taking leases at once or after a wait: the amount, the order, and the end of a wait.

#include "headroom/lease/acquire.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <barrier>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "headroom/base/error.h"
#include "headroom/gpu/simulated.h"
#include "headroom/lease/ledger.h"
#include "tests/gpu/fixtures/eventually.h"
#include "tests/gpu/fixtures/scripted_source.h"
#include "tests/lease/fixtures/children.h"
#include "tests/lease/fixtures/shared_card.h"
#include "tests/support/temporary_folder.h"

namespace headroom::lease {
namespace {

using namespace fixtures;
using headroom::gpu::fixtures::eventually;
using headroom::testing::TemporaryFolder;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr Seconds kLong{60};

class Acquire : public ::testing::Test {
 protected:
  Acquire() { cards_->count = 1; }

  Acquired acquire(gpu::DeviceRequest request, gpu::WaitOptions options = {},
                   Amount amount = Amount::needed) {
    gpu::Sampler sampler(steady(std::make_shared<SharedSource>(*cards_)), {.keep_sampling = false});
    return lease::acquire(directory_, sampler, request, options, "python train.py", amount);
  }
  // In a process of its own: it holds the lease, or waits for it, until it is killed.
  std::unique_ptr<Child> holder(Bytes need, int count = 1) {
    return std::make_unique<Child>([=, this] {
      auto* got = new Acquired(acquire({.need = need, .count = count}));
      if (!got->lease) ::_exit(1);
    });
  }
  // In a thread of its own, as long as it takes.
  struct Waiting {
    std::atomic<bool> done{false};
    Acquired got;
    std::jthread thread;  // the last: it is joined before what it writes to is gone
  };
  std::unique_ptr<Waiting> waiter(Bytes need, int count = 1, Seconds interval = Seconds(0.2)) {
    auto waiting = std::make_unique<Waiting>();
    const std::size_t before = directory_.contents().waiting.size();
    waiting->thread = std::jthread([=, this, w = waiting.get()](const std::stop_token& stop) {
      w->got = acquire({.need = need, .count = count},
                       {.timeout = kLong, .interval = interval, .cancel = stop});
      w->done = true;
    });
    EXPECT_TRUE(
        eventually([&] { return waiting->done || directory_.contents().waiting.size() > before; }));
    return waiting;
  }
  void use(std::size_t slot, Bytes amount, pid_t pid = 0, std::size_t card = 0) {
    Slot& entry = cards_->slots[slot];
    if (pid != 0) {
      entry.start_ticks = ProcessTable().stat(pid)->identity.start_ticks;
      entry.pid = pid;
    }
    entry.used[card] = amount.count;
  }

  TemporaryFolder folder_;
  Directory directory_ = Directory::at(folder_.path() / "leases");
  Cards* cards_ = Cards::make(kMostCards);
};

Bytes reserved(const Acquired& got, int card = 0) {
  return got.lease ? reserved_on(got.lease->claim(), uuid_of(card)) : Bytes{-1};
}

// ---- Now ----

TEST_F(Acquire, LeasesFreeMemory) {
  const Acquired got = acquire({.need = 10_GiB});
  EXPECT_EQ(reserved(got), 10_GiB);
  ASSERT_THAT(got.wait.selection.picked, SizeIs(1));
  EXPECT_THAT(directory_.contents().leases, SizeIs(1));
}

TEST_F(Acquire, AnUnusedReservationIsNotGivenAgain) {
  use(0, 10_GiB);  // a stranger's
  const Acquired first = acquire({.need = 8_GiB});
  ASSERT_TRUE(first.lease);
  const Acquired second = acquire({.need = 12_GiB});
  EXPECT_FALSE(second.lease);
  EXPECT_TRUE(second.wait.timed_out);
  EXPECT_EQ(second.wait.selection.shortfall, 6_GiB + kMargin);
  EXPECT_THAT(second.wait.selection.sentence, HasSubstr("reserved and not yet used: 8.00 GiB"));
  EXPECT_THAT(second.wait.selection.sentence, HasSubstr("python train.py"));
  EXPECT_EQ(reserved(acquire({.need = 5_GiB})), 5_GiB);
}

TEST_F(Acquire, UsedMemoryOfALeaseIsNotSubtractedTwice) {
  const Acquired first = acquire({.need = 8_GiB});
  use(0, 8_GiB, ::getpid());
  EXPECT_EQ(reserved(acquire({.need = 15_GiB})), 15_GiB);
}

TEST_F(Acquire, AllUsableMemoryCanBeLeased) {
  const Acquired got = acquire({}, {}, Amount::all_usable);
  EXPECT_EQ(reserved(got), 24_GiB - kMargin);
  EXPECT_FALSE(acquire({}, {}, Amount::all_usable).lease);
}

TEST_F(Acquire, SeveralCardsAreLeasedTogetherOrNotAtAll) {
  cards_->count = 3;
  const auto one = holder(20_GiB);
  const Acquired two = acquire({.need = 10_GiB, .count = 2});
  ASSERT_TRUE(two.lease);
  EXPECT_THAT(two.lease->claim().shares, SizeIs(2));
  EXPECT_FALSE(acquire({.need = 10_GiB, .count = 3}).lease);
  EXPECT_THAT(directory_.contents().leases, SizeIs(2));
}

// Eight jobs that a script started together all saw card 0 as the freest, and four of eight cards
// stayed idle: each one looked before the first lease was there. Here all look before any takes.
TEST_F(Acquire, JobsThatLookTogetherSpreadOverTheCards) {
  constexpr int kJobs = 8;
  cards_->count = kJobs;
  std::barrier looked(kJobs);
  std::array<Acquired, kJobs> got;
  {
    std::vector<std::jthread> jobs;
    for (int i = 0; i < kJobs; ++i)
      jobs.emplace_back([&, i] {
        gpu::WaitOptions options;
        options.recent_ends = [&, first = true](const gpu::Machine&) mutable {
          if (std::exchange(first, false)) looked.arrive_and_wait();
          return std::set<gpu::Uuid>{};
        };
        got.at(static_cast<std::size_t>(i)) = acquire({.need = 10_GiB}, options);
      });
  }
  std::set<gpu::Uuid> cards;
  for (const Acquired& one : got) {
    ASSERT_TRUE(one.lease) << one.wait.selection.sentence;
    cards.insert(one.lease->claim().shares.at(0).card);
    EXPECT_EQ(one.wait.selection.picked.at(0).card.uuid, one.lease->claim().shares.at(0).card);
  }
  EXPECT_THAT(cards, SizeIs(kJobs));
}

TEST_F(Acquire, ExcludedCardsAreNotLeased) {
  cards_->count = 2;
  gpu::WaitOptions second_only;
  second_only.narrow = [](gpu::Machine machine) {
    machine.cards.erase(machine.cards.begin());
    return machine;
  };
  EXPECT_EQ(reserved(acquire({.need = 1_GiB}, second_only), 1), 1_GiB);
}

TEST_F(Acquire, DoesNotWaitForMoreThanAnyCardHas) {
  for (const Bytes need : {30_GiB, 24_GiB}) {
    const Acquired got = acquire({.need = need}, {.timeout = kLong});
    EXPECT_TRUE(got.wait.selection.cannot_be_met && !got.wait.timed_out) << to_string(need);
  }
  EXPECT_THAT(acquire({.need = 24_GiB}).wait.selection.sentence, HasSubstr("always kept free"));
  EXPECT_THAT(acquire({.need = 30_GiB}).wait.selection.sentence,
              Not(HasSubstr("always kept free")));
}

TEST_F(Acquire, ChoosesTheCpuOnlyIfAllowed) {
  use(0, 20_GiB);
  const Acquired got = acquire({.need = 10_GiB, .allow_cpu = true});
  EXPECT_TRUE(got.wait.selection.cpu && !got.lease);
  EXPECT_FALSE(acquire({.need = 10_GiB}).wait.selection.cpu);
}

TEST_F(Acquire, AnUnreadableLeaseBlocksAllRequestsAndIsNamed) {
  const Acquired first = acquire({.need = 1_GiB});
  const auto path = directory_.path() / (first.lease->claim().id + ".lease");
  std::filesystem::resize_file(path, 7);
  const Acquired got = acquire({.need = 1_GiB});
  EXPECT_FALSE(got.lease);
  EXPECT_THAT(got.wait.selection.sentence, HasSubstr(path.string()));
}

TEST_F(Acquire, OldDataDecidesNothing) {
  const auto source = std::make_shared<gpu::fixtures::ScriptedSource>(1);
  source->process_gate(0).close();
  {
    gpu::Sampler sampler(source, {.keep_sampling = false, .hang_after = Seconds(0.1)});
    const Acquired got = lease::acquire(directory_, sampler, {.need = 1_GiB}, {}, "x");
    EXPECT_FALSE(got.lease);
    EXPECT_TRUE(got.wait.selection.stale);
  }
  source->release_all();
}

// ---- Later ----

TEST_F(Acquire, WaitsUntilAHolderEnds) {
  auto first = holder(20_GiB);
  const auto second = waiter(10_GiB);
  EXPECT_FALSE(second->done);
  first->kill();
  EXPECT_TRUE(eventually([&] { return second->done.load(); }));
  EXPECT_EQ(reserved(second->got), 10_GiB);
  EXPECT_THAT(directory_.contents().waiting, IsEmpty());
}

// The folder wakes it: it would look again by itself only in an hour.
TEST_F(Acquire, AChangeInTheFolderWakesAWaiter) {
  auto first = holder(20_GiB);
  const auto second = waiter(10_GiB, 1, Seconds(3600));
  EXPECT_TRUE(eventually([&] { return directory_.contents().waiting.size() == 1; }));
  first->kill();
  EXPECT_TRUE(eventually([&] { return second->done.load(); }));
}

TEST_F(Acquire, WaitsAfterAHoldersEndUntilTheMemoryIsBack) {
  auto first = holder(20_GiB);
  use(0, 20_GiB, first->pid());
  const auto second = waiter(10_GiB);
  first->kill();
  EXPECT_TRUE(eventually([&] { return directory_.contents().leases.empty(); }));
  std::size_t looks = 0;
  EXPECT_TRUE(eventually([&] { return ++looks > 100; }));
  EXPECT_FALSE(second->done) << "the lease is over, the memory is not back";
  use(0, 0_GiB);
  EXPECT_TRUE(eventually([&] { return second->done.load(); }));
  EXPECT_EQ(reserved(second->got), 10_GiB);
}

TEST_F(Acquire, TimesOutWithAReason) {
  const auto first = holder(20_GiB);
  std::vector<std::string> said;
  gpu::WaitOptions options{.timeout = Seconds(0.3), .interval = Seconds(0.05)};
  options.progress = [&](const gpu::WaitProgress& p) { said.push_back(p.selection.sentence); };
  const Acquired got = acquire({.need = 10_GiB}, options);
  EXPECT_TRUE(got.wait.timed_out && !got.lease);
  EXPECT_THAT(got.wait.selection.sentence, HasSubstr("short by"));
  ASSERT_FALSE(said.empty());
  EXPECT_THAT(said.front(), HasSubstr("PID " + std::to_string(first->pid())));
  EXPECT_THAT(directory_.contents().waiting, IsEmpty());
}

TEST_F(Acquire, CanBeCancelled) {
  const auto first = holder(20_GiB);
  const auto second = waiter(10_GiB, 1, Seconds(3600));
  second->thread.request_stop();
  EXPECT_TRUE(eventually([&] { return second->done.load(); }));
  EXPECT_TRUE(second->got.wait.cancelled && !second->got.lease);
  EXPECT_THAT(directory_.contents().waiting, IsEmpty());
}

TEST_F(Acquire, ReportsThePositionInTheQueue) {
  const auto first = holder(20_GiB);
  const auto second = waiter(20_GiB), third = waiter(20_GiB);
  gpu::WaitOptions options{.timeout = Seconds(0.2), .interval = Seconds(0.05)};
  const Acquired got = acquire({.need = 20_GiB}, options);
  EXPECT_THAT(got.wait.selection.sentence, HasSubstr("number 3 of 3 in the queue"));
}

// ---- The order ----

TEST_F(Acquire, EarlierWaitersGoFirst) {
  auto first = holder(20_GiB);
  const auto second = waiter(20_GiB);
  const auto third = waiter(20_GiB);
  first->kill();
  EXPECT_TRUE(eventually([&] { return second->done || third->done; }));
  EXPECT_TRUE(second->done);
  EXPECT_FALSE(third->done);
}

TEST_F(Acquire, AWaiterIsPassedAtMostEightTimes) {
  const auto first = holder(10_GiB);
  const auto big = waiter(20_GiB);
  for (int i = 0; i < kMostPasses; ++i) {
    EXPECT_TRUE(acquire({.need = 1_GiB}).lease) << i;
  }
  const Acquired ninth = acquire({.need = 1_GiB});
  EXPECT_FALSE(ninth.lease);
  EXPECT_THAT(ninth.wait.selection.sentence, HasSubstr("in the queue"));
}

// It once held up the whole machine.
TEST_F(Acquire, AnOftenPassedGangBlocksOnlyTheNearestCards) {
  cards_->count = 4;
  for (const std::size_t card : {0, 1, 2, 3}) use(0, 8_GiB, 0, card);
  use(0, 16_GiB, 0, 3);
  const auto gang = waiter(20_GiB, 2);
  for (int i = 0; i < kMostPasses; ++i)
    EXPECT_TRUE(acquire({.need = 1_GiB, .order = gpu::Order::index}).lease) << i;
  const Acquired rest = acquire({.need = 1_GiB, .count = 2});
  ASSERT_TRUE(rest.lease);
  EXPECT_EQ(reserved(rest, 2), 1_GiB);
  EXPECT_EQ(reserved(rest, 3), 1_GiB);
  EXPECT_FALSE(acquire({.need = 1_GiB, .count = 3}).lease);
}

TEST_F(Acquire, AnOftenPassedWaiterIsServedFirst) {
  auto first = holder(10_GiB);
  const auto big = waiter(20_GiB);
  for (int i = 0; i < kMostPasses; ++i) static_cast<void>(acquire({.need = 1_GiB}));
  const auto small = waiter(4_GiB);
  EXPECT_FALSE(small->done);
  first->kill();
  EXPECT_TRUE(eventually([&] { return big->done.load(); }));
  EXPECT_EQ(reserved(big->got), 20_GiB);
}

TEST_F(Acquire, AStoppedWaiterBlocksNoOther) {
  const auto first = holder(10_GiB);
  Child stopped([&] {
    const Directory::Turn turn = directory_.take_turn();
    Waiter waiter;
    waiter.wish = {.need = 12_GiB, .count = 1, .cards = {uuid_of(0)}};
    new PlaceInQueue(turn.join_queue(waiter, turn.contents()));
  });
  ASSERT_TRUE(stopped.is_ready());
  EXPECT_FALSE(acquire({.need = 12_GiB}).lease) << "it has just looked, and would be next";
  stopped.signal(SIGSTOP);
  // Eleven seconds, without waiting for them.
  timespec past{};
  ::clock_gettime(CLOCK_MONOTONIC, &past);
  past.tv_sec -= 11;
  const timespec times[2] = {past, past};
  for (const auto& entry : std::filesystem::directory_iterator(directory_.path())) {
    if (entry.path().extension() == ".wait") {
      ASSERT_EQ(::utimensat(AT_FDCWD, entry.path().c_str(), times, 0), 0);
    }
  }
  EXPECT_TRUE(acquire({.need = 12_GiB}).lease);
}

TEST_F(Acquire, ARequestForOtherCardsIsNotBlocked) {
  cards_->count = 2;
  const auto first = holder(20_GiB, 2);
  const auto gang = waiter(20_GiB, 2);
  EXPECT_TRUE(acquire({.need = 3_GiB}).lease);
}

// ---- On simulated cards ----

// A simulated box that processes share is a machine like any other: its file lists the use of each
// process.
TEST_F(Acquire, WorksOnASharedSimulatedBox) {
  const ProcessIdentity self = this_process();
  folder_.write("state/boxes/lab.json",
                "{\"cards\":[{\"total_bytes\":25769803776}],\"shares\":[{\"pid\":" +
                    std::to_string(self.pid) + ",\"start_ticks\":" +
                    std::to_string(self.start_ticks) + ",\"card\":0,\"used_bytes\":8589934592}]}");
  ::setenv("HEADROOM_STATE_DIR", (folder_.path() / "state").c_str(), 1);
  const auto on_box = [&](Bytes need) {
    gpu::Sampler sampler(steady(gpu::make_simulated_source(gpu::parse_simulated("1x24GiB@lab"))),
                         {.keep_sampling = false});
    return lease::acquire(directory_, sampler, {.need = need}, {}, "x");
  };
  const Acquired first = on_box(10_GiB);
  ASSERT_TRUE(first.lease);
  EXPECT_EQ(on_box(15_GiB).wait.selection.shortfall, 1_GiB) << "8 of the 10 are used already";
  EXPECT_TRUE(on_box(14_GiB).lease);
  ::unsetenv("HEADROOM_STATE_DIR");
}

TEST(SimulatedCards, DifferBetweenTwoBoxesAndAreTheSameInOne) {
  const auto card = [](const char* box) {
    return gpu::make_simulated_source(gpu::parse_simulated(box))->open().cards.at(0).uuid;
  };
  EXPECT_EQ(card("2x1GiB@lease-a"), card("2x1GiB@lease-a"));
  EXPECT_NE(card("2x1GiB@lease-a"), card("2x1GiB@lease-b"));
}

// ---- Faults ----

TEST_F(Acquire, AMissingFolderIsAnError) {
  std::filesystem::remove_all(directory_.path());
  EXPECT_THROW(static_cast<void>(acquire({.need = 1_GiB})), Error);
}

}  // namespace
}  // namespace headroom::lease
