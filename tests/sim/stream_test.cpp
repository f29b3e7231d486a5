// Streams, events and the guard: work is done in order, at once; memory belongs to streams.
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <set>
#include <thread>

#include "headroom/base/error.h"
#include "headroom/sim/simulate.h"

namespace headroom::sim {
namespace {

using namespace headroom::literals;
constexpr auto kSim = c10::DeviceType::PrivateUse1;

class Stream : public ::testing::Test {
 protected:
  [[nodiscard]] c10::Stream new_stream(int card = 0) const {
    return c10::impl::VirtualGuardImpl(kSim).getNewStream(box_.device(card), 0);
  }
  [[nodiscard]] c10::Stream current(int card = 0) const {
    return c10::impl::VirtualGuardImpl(kSim).getStream(box_.device(card));
  }
  [[nodiscard]] torch::Tensor bytes(Bytes count) const {
    return torch::empty({count.count}, torch::device(box_.device(0)).dtype(torch::kUInt8));
  }
  [[nodiscard]] std::int64_t reserved() const {
    return box_.card(0).statistics().reserved_bytes.all.current;
  }
  [[nodiscard]] std::int64_t active() const {
    return box_.card(0).statistics().active_bytes.all.current;
  }

  Simulation box_ = simulate("2x1GiB", {.mode = Mode::compute, .check_streams = true});
};

TEST_F(Stream, TheGuardChoosesTheCardForThisThread) {
  EXPECT_EQ(torch::empty({1}, kSim).device(), box_.device(0));
  {
    const c10::DeviceGuard guard(box_.device(1));
    EXPECT_EQ(torch::empty({1}, kSim).device(), box_.device(1));
    std::thread([&] { EXPECT_EQ(torch::empty({1}, kSim).device(), box_.device(0)); }).join();
  }
  EXPECT_EQ(torch::empty({1}, kSim).device(), box_.device(0));
}

TEST_F(Stream, TheGuardOfAStreamChoosesItsCardToo) {
  const c10::Stream side = new_stream(1);
  {
    const c10::StreamGuard guard(side);
    EXPECT_EQ(current(1), side);
    EXPECT_EQ(torch::empty({1}, kSim).device(), box_.device(1));
  }
  EXPECT_EQ(current(1).id(), 0);
  EXPECT_EQ(torch::empty({1}, kSim).device(), box_.device(0));
}

TEST_F(Stream, OfThePoolAreThirtyTwoInTurn) {
  const c10::impl::VirtualGuardImpl guard(kSim);
  std::set<c10::StreamId> normal, high;
  for (int i = 0; i < 40; ++i) {
    normal.insert(guard.getStreamFromGlobalPool(box_.device(0)).id());
    high.insert(guard.getStreamFromGlobalPool(box_.device(0), true).id());
  }
  EXPECT_EQ(normal.size(), 32u);
  EXPECT_EQ(high.size(), 32u);
  EXPECT_FALSE(normal.contains(0)) << "the default stream is none of them";
  EXPECT_FALSE(normal.contains(*high.begin()));
  EXPECT_FALSE(high.contains(new_stream().id()));
}

TEST_F(Stream, MemoryGoesBackToTheStreamItWasTakenOn) {
  const c10::Stream side = new_stream();
  {
    const c10::StreamGuard guard(side);
    bytes(100_MiB).reset();
  }
  const auto other = bytes(100_MiB);
  EXPECT_EQ(reserved(), (200_MiB).count) << "the side stream's block is not for this one";
  const c10::StreamGuard guard(side);
  const auto again = bytes(100_MiB);
  EXPECT_EQ(reserved(), (200_MiB).count);
}

// CUDA's allocator looks at the events of a block that others used at its next request, not before.
TEST_F(Stream, ABlockThatAnotherStreamUsedIsFreeFromTheNextRequestOn) {
  auto x = bytes(100_MiB);
  x.record_stream(new_stream());
  x.reset();
  EXPECT_EQ(active(), (100_MiB).count) << "given back, but perhaps still read";
  const auto small = bytes(1_MiB);
  EXPECT_EQ(active(), (1_MiB).count);
  const auto y = bytes(100_MiB);
  EXPECT_EQ(reserved(), (102_MiB).count) << "the same block again";
}

TEST_F(Stream, EventsAreDoneWhenTheyAreRecorded) {
  c10::Event from(kSim, c10::EventFlag::BACKEND_DEFAULT);
  c10::Event to(kSim, c10::EventFlag::BACKEND_DEFAULT);
  EXPECT_TRUE(from.query()) << "an event that was never recorded is complete";
  from.record(current());
  to.record(current());
  EXPECT_TRUE(to.query());
  to.block(new_stream());
  to.synchronize();
  EXPECT_GE(from.elapsedTime(to), 0);
  EXPECT_LE(to.elapsedTime(from), 0);
  current().synchronize();
  EXPECT_TRUE(new_stream(1).query());
}

TEST_F(Stream, BackwardRunsOnTheStreamOfItsForward) {
  const c10::StreamGuard guard(new_stream());
  auto x = torch::ones({1024 * 1024}, torch::device(box_.device(0)).requires_grad(true));
  (x * 2).sum().backward();
  std::set<allocator::StreamId> streams;
  for (const auto& segment : box_.card(0).snapshot()) streams.insert(segment.stream);
  EXPECT_EQ(streams.size(), 1u) << "gradients were allocated on it, too";
  EXPECT_FALSE(streams.contains(0));
}

}  // namespace
}  // namespace headroom::sim
