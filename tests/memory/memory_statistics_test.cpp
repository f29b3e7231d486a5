#include "headroom/memory/memory_statistics.h"

#include <c10/core/CPUAllocator.h>
#include <gmock/gmock.h>
#include <torch/torch.h>
#include <unistd.h>

#include <stop_token>
#include <string>
#include <thread>

#include "headroom/base/error.h"
#include "headroom/memory/count_cpu.h"
#include "headroom/memory/live.h"
#include "headroom/memory/summary.h"
#include "headroom/sim/child.h"
#include "headroom/sim/simulate.h"
#include "tests/memory/floats.h"

namespace headroom::memory {
namespace {

using namespace literals;
using ::testing::HasSubstr;
using torch::Tensor;

TEST(MemoryStats, TellWhatTensorsOnACardTake) {
  const sim::Simulation box = sim::simulate("2x1GiB");
  const Tensor kept = floats(64, box.device(1));
  floats(32, box.device(1));
  const GpuMemoryStats stats = get_gpu_memory_stats(box.device(1));
  EXPECT_EQ(stats.device.str(), "sim:1");
  EXPECT_EQ(stats.allocated, 64_MiB);
  EXPECT_EQ(stats.max_allocated, 96_MiB);
  EXPECT_EQ(stats.reserved, 96_MiB);
  EXPECT_EQ(stats.allocated_in_all, 96_MiB);
  EXPECT_EQ(stats.freed_in_all, 32_MiB);
  EXPECT_EQ(stats.allocations, 1);
  EXPECT_EQ(stats.total, 1_GiB);
  EXPECT_EQ(stats.free, 1_GiB - 96_MiB);
  EXPECT_EQ(get_gpu_memory_stats(box.device(0)).allocated, 0_B);
}

TEST(MemoryStats, CountRefusals) {
  const sim::Simulation box = sim::simulate("1x1GiB");
  EXPECT_THROW(floats(2048, box.device(0)), c10::OutOfMemoryError);
  EXPECT_EQ(get_gpu_memory_stats(box.device(0)).ooms, 1);
}

TEST(MemoryStats, TakeADeviceWithoutIndexForTheCurrentOne) {
  const sim::Simulation box = sim::simulate("2x1GiB");
  const c10::DeviceGuard guard(box.device(1));
  EXPECT_EQ(get_gpu_memory_stats(torch::Device("sim")).device.str(), "sim:1");
}

TEST(MemoryStats, AreRefusedForDevicesThatAreNotThere) {
  EXPECT_THROW((void)get_gpu_memory_stats(torch::Device("meta")), UsageError);
  EXPECT_THROW((void)get_gpu_memory_stats(torch::Device("cuda:0")), UsageError);
  const sim::Simulation box = sim::simulate("1x1GiB");
  EXPECT_THROW((void)get_gpu_memory_stats(torch::Device("sim:1")), UsageError);
}

TEST(MemoryStats, ExplainWhyThereIsNoCuda) {
  try {
    (void)get_gpu_memory_stats(torch::Device("cuda:0"));
    FAIL() << "there is a GPU in a process without LibTorch's CUDA part";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("libtorch_cuda.so"));
  }
}

TEST(PeakMemory, RestartsAtAReset) {
  const sim::Simulation box = sim::simulate("1x1GiB");
  const Tensor kept = floats(16, box.device(0));
  floats(64, box.device(0));
  reset_peak_memory_stats(box.device(0));
  EXPECT_EQ(get_gpu_memory_stats(box.device(0)).max_allocated, 16_MiB);
}

// The figures of sim:0 once outlived its simulation: a new box had the peak of the one before.
TEST(PeakMemory, IsNotThatOfACardOfTheSameNumberBefore) {
  {
    const sim::Simulation box = sim::simulate("1x1GiB");
    floats(64, box.device(0));
    reset_peak_memory_stats(box.device(0));
    floats(128, box.device(0));
    (void)get_gpu_memory_stats(box.device(0));
  }
  const sim::Simulation box = sim::simulate("1x1GiB");
  EXPECT_EQ(get_gpu_memory_stats(box.device(0)).max_allocated, 0_B);
}

TEST(LogMemory, GivesTheLineToTheSinkAndPrintsNothing) {
  const sim::Simulation box = sim::simulate("1x1GiB");
  const Tensor kept = floats(64, box.device(0));
  std::string seen;
  ::testing::internal::CaptureStdout();
  const std::string line = log_gpu_memory_stats("after epoch 3", box.device(0),
                                                [&](std::string_view text) { seen = text; });
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(line, "after epoch 3: sim:0 allocated 64.0 MiB, reserved 64.0 MiB, peak 64.0 MiB");
  EXPECT_EQ(seen, line);
}

TEST(MemorySummary, HasTheFourLinesThatATrainingEndsWith) {
  const sim::Simulation box = sim::simulate("1x24GiB");
  const Tensor kept = floats(5 << 10, box.device(0));
  floats(2 << 10, box.device(0));
  EXPECT_EQ(short_memory_summary(box.device(0)),
            "GPU Memory Summary (sim:0):\n"
            "  Allocated: 5.00 GiB\n"
            "  Reserved: 7.00 GiB\n"
            "  Max Allocated: 7.00 GiB\n");
}

TEST(MemorySummary, SetsFiguresUnderTheirHeads) {
  const sim::Simulation box = sim::simulate("1x1GiB");
  const Tensor kept = floats(64, box.device(0));
  floats(32, box.device(0));
  EXPECT_THAT(memory_summary(box.device(0)),
              ::testing::StartsWith(
                  "Memory of sim:0: 928.0 MiB free of 1.00 GiB\n"
                  "                              now      peak  taken in all  given back\n"
                  "allocated                64.0 MiB  96.0 MiB      96.0 MiB    32.0 MiB\n"));
}

// ---- The CPU ----

TEST(CountCpuMemory, IsNeededForASnapshotToo) {
  EXPECT_THROW((void)live_allocations(c10::kCPU), UsageError);
}

TEST(CountCpuMemory, CountsTensorsWhileItLives) {
  const CountCpuMemory counting;
  const Tensor kept = floats(8, torch::kCPU);
  floats(4, torch::kCPU);
  const GpuMemoryStats stats = get_gpu_memory_stats(torch::kCPU);
  EXPECT_EQ(stats.allocated, 8_MiB);
  EXPECT_EQ(stats.max_allocated, 12_MiB);
  EXPECT_EQ(stats.allocations, 1);
}

TEST(CountCpuMemory, IsNeededForTheCpu) {
  EXPECT_THROW((void)get_gpu_memory_stats(torch::kCPU), UsageError);
  EXPECT_THROW(reset_peak_memory_stats(torch::kCPU), UsageError);
}

TEST(CountCpuMemory, DoesNotCountEarlierTensors) {
  Tensor old = floats(8, torch::kCPU);
  const CountCpuMemory counting;
  old = Tensor();
  EXPECT_EQ(get_gpu_memory_stats(torch::kCPU).allocated, 0_B);
}

TEST(CountCpuMemory, LetsTensorsOutliveIt) {
  Tensor kept;
  {
    const CountCpuMemory counting;
    kept = torch::ones({1 << 18});
  }
  EXPECT_EQ(kept.sum().item<float>(), 1 << 18);
  kept = Tensor();
  const CountCpuMemory again;
  EXPECT_EQ(get_gpu_memory_stats(torch::kCPU).allocated, 0_B);
}

TEST(CountCpuMemory, BeginsAtZeroAgain) {
  {
    const CountCpuMemory counting;
    floats(64, torch::kCPU);
    reset_peak_memory_stats(torch::kCPU);
    floats(32, torch::kCPU);
    EXPECT_EQ(get_gpu_memory_stats(torch::kCPU).max_allocated, 32_MiB);
  }
  const CountCpuMemory counting;
  EXPECT_EQ(get_gpu_memory_stats(torch::kCPU).max_allocated, 0_B);
}

// oneDNN takes memory by raw_allocate and gives it back by raw_deallocate, whichever allocator is
// installed by then.
TEST(CountCpuMemory, LetsRawMemoryCrossItsBeginningAndEnd) {
  void* const before = c10::GetCPUAllocator()->raw_allocate(1 << 20);
  void* during = nullptr;
  {
    const CountCpuMemory counting;
    c10::GetCPUAllocator()->raw_deallocate(before);
    EXPECT_EQ(get_gpu_memory_stats(torch::kCPU).allocated, 0_B);
    during = c10::GetCPUAllocator()->raw_allocate(1 << 20);
    EXPECT_EQ(get_gpu_memory_stats(torch::kCPU).allocated, 1_MiB);
  }
  c10::GetCPUAllocator()->raw_deallocate(during);
}

TEST(CountCpuMemory, NestsAndThenGivesTheOldAllocatorBack) {
  c10::Allocator* const before = c10::GetCPUAllocator();
  {
    const CountCpuMemory outer;
    const Tensor kept = floats(8, torch::kCPU);
    { const CountCpuMemory inner; }
    EXPECT_EQ(get_gpu_memory_stats(torch::kCPU).allocated, 8_MiB);
  }
  EXPECT_EQ(c10::GetCPUAllocator(), before);
}

TEST(CountCpuMemory, CountsOnAllThreads) {
  const CountCpuMemory counting;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([] {
      for (int round = 0; round < 200; ++round) floats(1, torch::kCPU);
    });
  for (std::thread& thread : threads) thread.join();
  const GpuMemoryStats stats = get_gpu_memory_stats(torch::kCPU);
  EXPECT_EQ(stats.allocated, 0_B);
  EXPECT_EQ(stats.allocated_in_all, 800_MiB);
}

// A child whose parent forked while another thread counted memory must not wait for that thread.
TEST(CountCpuMemory, LetsAChildAllocateWhicheverThreadAllocatedInItsParent) {
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
  GTEST_SKIP() << "clang 14's address sanitizer forks with its own allocator locked";
#endif
#endif
  const CountCpuMemory counting;
  const std::jthread other([](const std::stop_token& stop) {
    while (!stop.stop_requested()) torch::empty({16});
  });
  for (int i = 0; i < 300; ++i) {
    const std::string answer = sim::in_child([] {
      ::alarm(60);  // ends a child that hangs
      return std::to_string(torch::empty({16}).numel());
    });
    ASSERT_EQ(answer, "16") << i;
  }
}

}  // namespace
}  // namespace headroom::memory
