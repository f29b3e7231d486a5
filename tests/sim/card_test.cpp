// One card: the allocator behind LibTorch's own interface for accelerators.
#include "headroom/sim/card.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include "headroom/base/error.h"
#include "headroom/sim/simulate.h"

namespace headroom::sim {
namespace {

using namespace headroom::literals;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

c10::DeviceAllocator& device_allocator() {
  return *c10::getDeviceAllocator(c10::DeviceType::PrivateUse1);
}

torch::Tensor bytes_on(const Simulation& box, Bytes bytes, int card = 0) {
  return torch::empty({bytes.count}, torch::device(box.device(card)).dtype(torch::kUInt8));
}

std::string refusal_of(const Simulation& box, Bytes bytes) {
  try {
    (void)bytes_on(box, bytes);
  } catch (const c10::OutOfMemoryError& error) {
    return error.what_without_backtrace();
  }
  return "allocated";
}

TEST(Card, AnswersLibTorchsQuestionsAboutMemory) {
  const Simulation box = simulate("2x1GiB");
  auto& allocator = device_allocator();
  {
    const auto x = bytes_on(box, 100_MiB, 1);
    const auto stats = allocator.getDeviceStats(1);
    EXPECT_EQ(stats.allocated_bytes[0].current, (100_MiB).count);
    EXPECT_EQ(stats.allocation[0].current, 1);
    EXPECT_EQ(allocator.getMemoryInfo(1).first, static_cast<std::size_t>((924_MiB).count));
    EXPECT_EQ(allocator.getMemoryInfo(1).second, static_cast<std::size_t>((1_GiB).count));
  }
  EXPECT_EQ(allocator.getDeviceStats(1).reserved_bytes[0].current, (100_MiB).count) << "cached";
  EXPECT_EQ(allocator.getDeviceStats(1).allocated_bytes[0].peak, (100_MiB).count);
  allocator.resetPeakStats(1);
  EXPECT_EQ(allocator.getDeviceStats(1).allocated_bytes[0].peak, 0);
  allocator.emptyCache();
  EXPECT_EQ(allocator.getDeviceStats(1).reserved_bytes[0].current, 0);
  allocator.resetAccumulatedStats(1);
  EXPECT_EQ(allocator.getDeviceStats(1).allocated_bytes[0].allocated, 0);
  EXPECT_EQ(allocator.getDeviceStats(0).allocation[0].allocated, 0) << "the other card";
  EXPECT_THROW((void)allocator.getDeviceStats(2), c10::Error);
}

TEST(Card, RefusesInPyTorchsWordsWithItsOwnName) {
  const Simulation box = simulate("1x1GiB");
  const auto x = bytes_on(box, 600_MiB);
  EXPECT_THAT(
      refusal_of(box, 500_MiB),
      ::testing::StartsWith("CUDA out of memory. Tried to allocate 500.00 MiB. GPU 0 (sim:0) "
                            "has a total capacity of 1024.00 MiB of which 424.00 MiB is free."));
  EXPECT_EQ(box.card(0).last_out_of_memory()->requested, 500_MiB);
  EXPECT_EQ(box.card(0).statistics().num_ooms, 1);
}

// Once the second time ended the process.
TEST(Card, RefusesToFreeABlockTwice) {
  const Simulation box = simulate("1x1GiB");
  const allocator::BlockId block = box.card(0).allocate(1_MiB, 0);
  box.card(0).free(block);
  EXPECT_THROW(box.card(0).free(block), UsageError);
}

TEST(Card, GivesCachedMemoryBackBeforeItRefuses) {
  const Simulation box = simulate("1x1GiB");
  bytes_on(box, 600_MiB).reset();
  EXPECT_EQ(refusal_of(box, 700_MiB), "allocated");
  EXPECT_EQ(box.card(0).statistics().num_alloc_retries, 1);
}

TEST(Card, StaysWithinItsMemoryFraction) {
  const Simulation box = simulate("1x1GiB");
  box.card(0).set_memory_fraction(0.25);
  EXPECT_THAT(refusal_of(box, 300_MiB), HasSubstr("256.00 MiB allowed"));
  EXPECT_EQ(refusal_of(box, 200_MiB), "allocated");
}

// Otherwise each segment of 20 MiB holds two pieces of 9 MiB, and 2 MiB at its end are lost.
TEST(Card, ExpandableSegmentsUseTheWholeCard) {
  const auto after_small_ones = [](const char* settings) {
    const Simulation box = simulate("1x100MiB", {.settings = allocator::parse_settings(settings)});
    std::vector<torch::Tensor> pieces;
    for (int i = 0; i < 8; ++i) pieces.push_back(bytes_on(box, 9_MiB));
    return refusal_of(box, 25_MiB);
  };
  EXPECT_EQ(after_small_ones("expandable_segments:True"), "allocated");
  EXPECT_THAT(after_small_ones("expandable_segments:False"), HasSubstr("20.00 MiB is free"));
}

TEST(Card, MemoryOfOthersIsNotFree) {
  const Simulation box = simulate("1x1GiB");
  box.card(0).set_used_by_others(900_MiB);
  EXPECT_EQ(box.card(0).free_bytes(), 124_MiB);
  EXPECT_THAT(refusal_of(box, 200_MiB), HasSubstr("124.00 MiB is free"));
  box.card(0).set_used_by_others({});
  EXPECT_EQ(refusal_of(box, 200_MiB), "allocated");
}

// ---- The profiler ----

// LibTorch's profiler on this thread, as far as allocators see it.
struct Profiler final : c10::MemoryReportingInfoBase {
  void reportMemoryUsage(void* pointer, int64_t change, std::size_t allocated, std::size_t reserved,
                         c10::Device device) override {
    reports.push_back({pointer, change, allocated, reserved, device});
  }
  void reportOutOfMemory(int64_t bytes, std::size_t, std::size_t, c10::Device) override {
    refused.push_back(bytes);
  }
  [[nodiscard]] bool memoryProfilingEnabled() const override { return true; }

  struct Report {
    void* pointer;
    int64_t change;
    std::size_t allocated, reserved;
    c10::Device device;
  };
  std::vector<Report> reports;
  std::vector<int64_t> refused;
};

TEST(Card, ReportsToTheProfilerLikeCudasAllocator) {
  const Simulation box = simulate("1x1GiB");
  const auto profiler = std::make_shared<Profiler>();
  {
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, profiler);
    bytes_on(box, 1000_B).reset();
    EXPECT_THROW((void)bytes_on(box, 2_GiB), c10::OutOfMemoryError);
  }
  bytes_on(box, 1000_B).reset();
  ASSERT_EQ(profiler->reports.size(), 2u);
  EXPECT_EQ(profiler->reports[0].change, 1024) << "with the rounding";
  EXPECT_EQ(profiler->reports[0].allocated, 1024u);
  EXPECT_EQ(profiler->reports[0].reserved, 2u << 20);
  EXPECT_EQ(profiler->reports[0].device, box.device(0));
  EXPECT_EQ(profiler->reports[1].change, -1024);
  EXPECT_EQ(profiler->reports[1].pointer, profiler->reports[0].pointer);
  EXPECT_THAT(profiler->refused, ::testing::ElementsAre((2_GiB).count));
}

}  // namespace
}  // namespace headroom::sim
