#include "headroom/oom/detail/figures.h"

#include <gtest/gtest.h>

#include "headroom/base/text.h"

namespace headroom::oom::detail {
namespace {

using namespace headroom::literals;

Bytes gib(double amount) {
  return Bytes{static_cast<std::int64_t>(amount * (1 << 30))};
}

TEST(OomFigures, OfPyTorchsOldWording) {
  const Figures figures = figures_in(
      "cuda out of memory. tried to allocate 304.00 mib (gpu 1; 31.75 gib total capacity; 18.20 "
      "gib already allocated; 131.50 mib free; 18.33 gib reserved in total by pytorch)");
  EXPECT_EQ(figures.asked, 304_MiB);
  EXPECT_EQ(figures.total, gib(31.75));
  EXPECT_EQ(figures.free, Bytes{137887744});
  EXPECT_EQ(figures.device, 1);
}

TEST(OomFigures, OfPyTorchsNewWording) {
  const Figures figures = figures_in(
      "cuda out of memory. tried to allocate 22.78 gib. gpu 0 has a total capacity of 31.47 gib of "
      "which 12.73 gib is free. including non-pytorch memory, this process has 18.73 gib memory in "
      "use.");
  EXPECT_EQ(figures.asked, gib(22.78));
  EXPECT_EQ(figures.total, gib(31.47));
  EXPECT_EQ(figures.free, gib(12.73));
  EXPECT_EQ(figures.device, 0);
}

TEST(OomFigures, OfCudaMallocAsync) {
  const Figures figures = figures_in(
      "allocation on device 0 would exceed allowed memory. (out of memory) currently allocated : "
      "6.89 gib requested : 320.00 mib device limit : 23.69 gib free (according to cuda): 2.94 "
      "mib");
  EXPECT_EQ(figures.asked, 320_MiB);
  EXPECT_EQ(figures.total, gib(23.69));
  EXPECT_EQ(figures.free, Bytes{3082813});
  EXPECT_EQ(figures.device, 0);
}

TEST(OomFigures, PrefersTheExactNumberInBrackets) {
  EXPECT_EQ(figures_in("failed to allocate 2.12g (2282521344 bytes) from device").asked,
            2282521344_B);
}

TEST(OomFigures, ReadsCommasAndPlainBytes) {
  EXPECT_EQ(figures_in("out of memory allocating 25,600,000 bytes (allocated so far)").asked,
            25600000_B);
  EXPECT_EQ(figures_in("failed to allocate memory for requested buffer of size 643840").asked,
            643840_B);
}

// Paddle divides by 1024 twice and writes MB, as most programs do.
TEST(OomFigures, MegabytesOfLogsAreBinary) {
  const Figures figures = figures_in(
      "out of memory error on gpu 0. cannot allocate 165.586182mb memory on gpu 0, 5.866455gb "
      "memory has been allocated and available memory is only 67.937500mb.");
  EXPECT_EQ(figures.asked, Bytes{173629696});
  EXPECT_EQ(figures.free, Bytes{71237632});
  EXPECT_EQ(figures.device, 0);
}

// The first "npu" has no number behind it.
TEST(OomFigures, EveryPlaceIsLookedAt) {
  EXPECT_EQ(figures_in("npu out of memory. tried to allocate 22.00 mib (npu 2; 60.97 gib total "
                       "capacity)")
                .device,
            2);
  EXPECT_EQ(figures_in("requested by op x. requested 776.5 mb; free 676 mb").asked,
            Bytes{814219264});
}

TEST(OomFigures, AnAmountHasAUnitOrIsOfBytes) {
  EXPECT_FALSE(figures_in("failed to allocate 12 nodes").asked);
  EXPECT_FALSE(figures_in("there are 3 gpus of which 2 are busy").free);
  EXPECT_EQ(figures_in("pt_devmem allocation failed for size::234881024 (224)mb").asked,
            234881024_B);
}

TEST(OomFigures, PairsShareAUnit) {
  const Figures vllm = figures_in("free memory on device cuda:0 (6/24 gib) on startup is less");
  EXPECT_EQ(vllm.free, 6_GiB);
  EXPECT_EQ(vllm.total, 24_GiB);
  const Figures tpu = figures_in("used 9.5g of 7.5g hbm. exceeded hbm capacity by 2.0g");
  EXPECT_EQ(tpu.asked, gib(9.5));
  EXPECT_EQ(tpu.total, gib(7.5));
  const Figures paddle = figures_in("enforce allocating <= available failed, 1024 > 512");
  EXPECT_EQ(paddle.asked, 1_KiB);
  EXPECT_EQ(paddle.free, 512_B);
}

TEST(OomFigures, OfTheKvCache) {
  const Figures figures = figures_in(
      "(4.5 gib kv cache is needed, which is larger than the available kv cache memory (4.0 gib)");
  EXPECT_EQ(figures.asked, gib(4.5));
  EXPECT_EQ(figures.free, 4_GiB);
}

TEST(OomFigures, TheVersionOfCudaIsNoDevice) {
  EXPECT_FALSE(figures_in("cuda11.8: out of memory on a gpu 80gb").device);
  EXPECT_EQ(figures_in("failed to allocate cuda1 buffer of size 12").device, 1);
}

TEST(OomFigures, NothingIsFree) {
  EXPECT_EQ(figures_in("17.20 gib already allocated; 0 bytes free; 19.15 gib reserved").free, 0_B);
}

TEST(OomFigures, AreUnknownIfTheTextNamesNone) {
  const Figures figures = figures_in("runtimeerror: cuda error: out of memory");
  EXPECT_FALSE(figures.asked || figures.total || figures.free || figures.device);
}

TEST(OomFigures, SurviveNumbersBeyondAllBounds) {
  const std::string text = "tried to allocate " + std::string(300, '9') + " gib";
  EXPECT_FALSE(figures_in(text).asked.has_value());
  EXPECT_EQ(figures_in("tried to allocate 99999999999999 gib").asked,
            Bytes{std::numeric_limits<std::int64_t>::max()});
}

TEST(OomFigures, OfMemoryThatPyTorchHoldsWithoutUse) {
  const Figures figures = figures_in(
      "tried to allocate 2.00 gib. gpu 0 has a total capacity of 24.00 gib of which 1.50 gib is "
      "free. of the "
      "allocated memory 20.00 gib is allocated by pytorch, and 1.25 gib is reserved by pytorch but "
      "unallocated.");
  EXPECT_EQ(figures.free, Bytes{std::int64_t{3} << 29});
  EXPECT_EQ(figures.cached, Bytes{std::int64_t{5} << 28});
}

}  // namespace
}  // namespace headroom::oom::detail
