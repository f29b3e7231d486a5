#include "headroom/memory/host_pool.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>

#include "headroom/sim/simulate.h"

namespace headroom::memory {
namespace {

using Lock = HostPool::Lock;

class Pool : public ::testing::Test {
 protected:
  const sim::Simulation box = sim::simulate("1x1GiB");
  const std::shared_ptr<HostPool> pool = HostPool::of_process();
};

TEST_F(Pool, IsOneForTheProcess) {
  EXPECT_EQ(HostPool::of_process(), pool);
}

TEST_F(Pool, GivesTheSamePlaceAgain) {
  const void* first = nullptr;
  {
    const HostPool::Buffer buffer = pool->take(3000, Lock::new_pages);
    EXPECT_EQ(buffer.bytes().numel(), 3000);
    EXPECT_TRUE(buffer.bytes().is_pinned());
    first = buffer.bytes().data_ptr();
  }
  const Bytes held = pool->held();
  const HostPool::Buffer again = pool->take(3000, Lock::new_pages);
  EXPECT_EQ(again.bytes().data_ptr(), first);
  const HostPool::Buffer beside = pool->take(3000, Lock::new_pages);
  EXPECT_NE(beside.bytes().data_ptr(), first);
  EXPECT_EQ(pool->held(), held);
}

TEST_F(Pool, JoinsPlacesThatTouch) {
  const std::int64_t third = (std::int64_t{1} << 20) / 4;
  {
    const HostPool::Buffer one = pool->take(third, Lock::new_pages);
    const HostPool::Buffer two = pool->take(third, Lock::new_pages);
    const HostPool::Buffer three = pool->take(third, Lock::new_pages);
  }
  const Bytes held = pool->held();
  const HostPool::Buffer whole = pool->take(4 * third, Lock::kept_pages);
  EXPECT_TRUE(whole.bytes().is_pinned());
  EXPECT_EQ(pool->held(), held);
}

TEST_F(Pool, LocksNoPagesWhereItMustNot) {
  EXPECT_FALSE(pool->take(3000, Lock::kept_pages).bytes().is_pinned());
  EXPECT_EQ(pool->held(), Bytes{});
  pool->warm(Bytes{5 << 20});
  EXPECT_GE(pool->held(), Bytes{5 << 20});
  EXPECT_TRUE(pool->take(3000, Lock::kept_pages).bytes().is_pinned());
  EXPECT_FALSE(pool->take(3000, Lock::never).bytes().is_pinned());
}

TEST_F(Pool, SaysWhatTheNextUserWaitsFor) {
  const auto event = std::make_shared<c10::Event>(c10::DeviceType::PrivateUse1);
  event->record(c10::impl::VirtualGuardImpl(c10::DeviceType::PrivateUse1).getStream(box.device(0)));
  constexpr std::int64_t kWhole = std::int64_t{1} << 20;  // so that no gap beside it is joined
  {
    HostPool::Buffer buffer = pool->take(kWhole, Lock::new_pages);
    buffer.used_until(event);
  }
  EXPECT_EQ(pool->take(1000, Lock::new_pages).used_before(), event);
}

}  // namespace
}  // namespace headroom::memory
