#include "headroom/memory/scope.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "headroom/base/error.h"
#include "headroom/memory/count_cpu.h"
#include "headroom/sim/simulate.h"
#include "tests/memory/floats.h"

namespace headroom::memory {
namespace {

using namespace literals;
using torch::Tensor;

TEST(GpuMemoryScope, TellsWhatABlockAllocatedItsPeakAndWhatItKept) {
  const sim::Simulation box = sim::simulate("1x1GiB");
  const Tensor before = floats(100, box.device(0));
  const GpuMemoryScope scope(box.device(0));
  const Tensor kept = floats(64, box.device(0));
  floats(32, box.device(0));
  const GpuMemoryUse use = scope.use();
  EXPECT_EQ(use.allocated, 96_MiB);
  EXPECT_EQ(use.freed, 32_MiB);
  EXPECT_EQ(use.kept, 64_MiB);
  EXPECT_EQ(use.peak, 196_MiB);
  EXPECT_EQ(use.peak_rise, 96_MiB);
  EXPECT_EQ(use.reserved_kept, 96_MiB);
}

TEST(GpuMemoryScope, ReportsNegativeKeptBytesIfItFreesMore) {
  const sim::Simulation box = sim::simulate("1x1GiB");
  Tensor before = floats(100, box.device(0));
  const GpuMemoryScope scope(box.device(0));
  before = Tensor();
  EXPECT_EQ(scope.use().kept, 0_B - 100_MiB);
  EXPECT_EQ(scope.use().peak_rise, 0_B);
}

TEST(GpuMemoryScope, DoesNotSeeAHigherPeakFromBefore) {
  const sim::Simulation box = sim::simulate("1x1GiB");
  floats(512, box.device(0));
  const GpuMemoryScope scope(box.device(0));
  floats(32, box.device(0));
  EXPECT_EQ(scope.use().peak, 32_MiB);
}

TEST(GpuMemoryScope, KeepsThePeakOfTheOuterScope) {
  const sim::Simulation box = sim::simulate("1x1GiB");
  const GpuMemoryScope outer(box.device(0));
  floats(256, box.device(0));
  {
    const GpuMemoryScope inner(box.device(0));
    floats(32, box.device(0));
    EXPECT_EQ(inner.use().peak, 32_MiB);
  }
  EXPECT_EQ(outer.use().peak, 256_MiB);
  EXPECT_EQ(get_gpu_memory_stats(box.device(0)).max_allocated, 256_MiB);
}

TEST(GpuMemoryScope, PassesAHigherPeakOnToTheOuterScope) {
  const sim::Simulation box = sim::simulate("1x1GiB");
  const GpuMemoryScope outer(box.device(0));
  {
    const GpuMemoryScope inner(box.device(0));
    floats(256, box.device(0));
  }
  floats(16, box.device(0));
  EXPECT_EQ(outer.use().peak, 256_MiB);
}

TEST(GpuMemoryScope, MayEndAfterOneThatBeganLater) {
  const sim::Simulation box = sim::simulate("1x1GiB");
  auto first = std::make_unique<GpuMemoryScope>(box.device(0));
  floats(64, box.device(0));
  const GpuMemoryScope second(box.device(0));
  floats(32, box.device(0));
  EXPECT_EQ(first->use().peak, 64_MiB);
  first.reset();
  floats(48, box.device(0));
  EXPECT_EQ(second.use().peak, 48_MiB);
}

TEST(GpuMemoryScope, KeepsItsPeakWhenThePeaksAreReset) {
  const sim::Simulation box = sim::simulate("1x1GiB");
  const GpuMemoryScope scope(box.device(0));
  floats(256, box.device(0));
  reset_peak_memory_stats(box.device(0));
  floats(16, box.device(0));
  EXPECT_EQ(scope.use().peak, 256_MiB);
  EXPECT_EQ(get_gpu_memory_stats(box.device(0)).max_allocated, 16_MiB);
}

TEST(GpuMemoryScope, LooksAtItsOwnCardOnly) {
  const sim::Simulation box = sim::simulate("2x1GiB");
  const GpuMemoryScope scope(box.device(0));
  floats(256, box.device(1));
  EXPECT_EQ(scope.use().allocated, 0_B);
}

TEST(GpuMemoryScope, WorksForTheCpuToo) {
  const CountCpuMemory counting;
  const GpuMemoryScope scope(torch::kCPU);
  const Tensor kept = floats(8, torch::kCPU);
  floats(4, torch::kCPU);
  EXPECT_EQ(scope.use().peak, 12_MiB);
  EXPECT_EQ(scope.use().kept, 8_MiB);
}

TEST(GpuMemoryScope, TellsASinkAtItsEnd) {
  const sim::Simulation box = sim::simulate("1x1GiB");
  std::string told;
  const Tensor before = floats(100, box.device(0));
  {
    const GpuMemoryScope scope("forward", box.device(0),
                               [&](std::string_view line) { told = line; });
    floats(64, box.device(0));
    EXPECT_EQ(told, "");
  }
  EXPECT_EQ(told,
            "forward: sim:0 allocated 64.0 MiB, kept 0 B, peak 164.0 MiB (64.0 MiB above the "
            "start)");
}

TEST(GpuMemoryScope, MayEndAfterItsCard) {
  std::unique_ptr<GpuMemoryScope> scope;
  std::string told = "nothing";
  {
    const sim::Simulation box = sim::simulate("1x1GiB");
    scope = std::make_unique<GpuMemoryScope>("x", box.device(0),
                                             [&](std::string_view line) { told = line; });
  }
  EXPECT_NO_THROW(scope.reset());
  EXPECT_EQ(told, "nothing");
}

}  // namespace
}  // namespace headroom::memory
