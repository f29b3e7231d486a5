// libheadroom_cuda.so over PyTorch's real caching allocator, on the CUDA runtime without a card of
// tests/oracle/fake_cuda. What it cannot tell is what needs libtorch_cuda.so or a driver: kernels,
// synchronisation, workspaces.
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/cuda/CUDAMacros.h>
#include <fake_cuda.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <string_view>

#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/cuda/load.h"
#include "headroom/memory/clear.h"
#include "headroom/memory/history.h"
#include "headroom/memory/memory_statistics.h"
#include "headroom/memory/scope.h"

namespace c10::cuda::_internal {
C10_CUDA_API void setHasPrimaryContext(bool (*func)(DeviceIndex));
}

namespace headroom {
namespace {

using namespace literals;

const c10::Device kCard{c10::DeviceType::CUDA, 0};

// One machine for the whole process, as PyTorch's allocator keeps its state.
const CudaFunctions& cuda() {
  static const CudaFunctions& functions = []() -> const CudaFunctions& {
    // libtorch_cuda.so says it where it is.
    c10::cuda::_internal::setHasPrimaryContext([](c10::DeviceIndex) { return true; });
    fake_cuda::start({.devices = 2, .capacity = std::uint64_t{1} << 30});
    return load_cuda_from(HEADROOM_CUDA_LIBRARY);
  }();
  return functions;
}

class Cuda : public testing::Test {
 protected:
  Cuda() {
    cuda();
    (void)memory::clear_gpu_memory();
    memory::reset_peak_memory_stats(kCard);
  }
  static c10::DataPtr take(Bytes bytes) {
    return c10::GetAllocator(c10::kCUDA)->allocate(static_cast<std::size_t>(bytes.count));
  }
};

TEST_F(Cuda, IsWhatThisProcessHas) {
  EXPECT_EQ(cuda().name, "cuda");
  EXPECT_EQ(&cuda_functions(), &cuda());
  EXPECT_EQ(cuda().why_absent(), "");
  EXPECT_EQ(cuda().device_count(), 2);
}

TEST_F(Cuda, RefusesACardThatIsNotThere) {
  EXPECT_THROW((void)cuda().snapshot(2), UsageError);
  EXPECT_THROW((void)cuda().memory_fraction(-1), UsageError);
}

TEST_F(Cuda, GivesTheSameStatisticsAsASimulatedCardWould) {
  const c10::DataPtr kept = take(64_MiB);
  take(32_MiB);
  const memory::GpuMemoryStats stats = memory::get_gpu_memory_stats(kCard);
  EXPECT_EQ(stats.allocated, 64_MiB);
  EXPECT_EQ(stats.max_allocated, 96_MiB);
  EXPECT_EQ(stats.reserved, 96_MiB);
  EXPECT_EQ(stats.total, 1_GiB);
  EXPECT_EQ(stats.free, 1_GiB - 96_MiB);
}

TEST_F(Cuda, HasScopesThatNest) {
  const memory::GpuMemoryScope outer(kCard);
  take(256_MiB);
  {
    const memory::GpuMemoryScope inner(kCard);
    take(32_MiB);
    EXPECT_EQ(inner.use().peak, 32_MiB);
  }
  EXPECT_EQ(outer.use().peak, 256_MiB);
}

TEST_F(Cuda, GivesItsCacheBack) {
  const c10::DataPtr kept = take(64_MiB);
  take(128_MiB);
  EXPECT_EQ(memory::clear_gpu_memory().given_back(), 128_MiB);
}

TEST_F(Cuda, LimitsWhatTheProcessMayReserve) {
  cuda().set_memory_fraction(0, 0.25);
  EXPECT_DOUBLE_EQ(cuda().memory_fraction(0), 0.25);
  EXPECT_THROW(take(512_MiB), c10::OutOfMemoryError);
  cuda().set_memory_fraction(0, 1.0);
  EXPECT_NO_THROW(take(512_MiB));
}

TEST_F(Cuda, ShowsItsBlocks) {
  const c10::DataPtr kept = take(3_MiB);
  const auto segments = cuda().snapshot(0);
  ASSERT_EQ(segments.size(), 1U);
  EXPECT_EQ(segments[0].size, 20_MiB);
  ASSERT_EQ(segments[0].blocks.size(), 2U);
  EXPECT_EQ(segments[0].blocks[0].state, allocator::BlockInfo::State::allocated);
  EXPECT_EQ(segments[0].blocks[0].requested, 3_MiB);
  EXPECT_EQ(segments[0].blocks[1].address, segments[0].address + (3 << 20));
}

TEST_F(Cuda, TellsARecorderEverythingItDoes) {
  trace::Recorder recorder;
  {
    const memory::History history = memory::record_history(kCard, recorder);
    const trace::ModuleScope module(recorder, recorder.name("h.0"));
    take(32_MiB);
  }
  take(8_MiB);
  std::vector<trace::Kind> kinds;
  for (std::uint64_t i = 0; i < recorder.recorded(); ++i) kinds.push_back(recorder.event(i).kind);
  using trace::Kind;
  EXPECT_THAT(kinds, testing::ElementsAre(Kind::segment_alloc, Kind::alloc, Kind::free_requested,
                                          Kind::free_completed));
  EXPECT_EQ(recorder.names().text(recorder.event(1).module), "h.0");
  EXPECT_EQ(recorder.event(1).bytes, 32_MiB);
}

TEST_F(Cuda, ListsLiveAllocationsAndTheirAge) {
  trace::Recorder recorder;
  const memory::History history = memory::record_history(kCard, recorder);
  recorder.mark("epoch 2");
  const c10::DataPtr lingering = take(16_MiB);
  const auto live = memory::live_allocations(kCard);
  ASSERT_EQ(live.size(), 1U);
  EXPECT_EQ(live[0].bytes, 16_MiB);
  EXPECT_EQ(live[0].mark, "epoch 2");
}

// A function that is looked up by its name, and was once misspelt: then it is nothing, in silence.
TEST(CudaNames, AreThoseOfLibTorch) {
  const std::string ours = read_input(HEADROOM_CUDA_LIBRARY);
  const char* const library = HEADROOM_TORCH_DIR "/lib/libtorch_cuda.so";
  const std::size_t size = std::filesystem::file_size(library);
  const int file = ::open(library, O_RDONLY | O_CLOEXEC);
  void* const mapped = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  const std::string_view theirs(static_cast<const char*>(mapped), size);
  int names = 0;
  for (std::size_t at = ours.find("_ZN2at4cuda"); at != std::string::npos;
       at = ours.find("_ZN2at4cuda", at + 1)) {
    const std::string name = ours.c_str() + at;
    ++names;
    EXPECT_NE(theirs.find(name + '\0'), std::string_view::npos) << name;
  }
  EXPECT_GT(names, 0);
  ::munmap(mapped, size);
  ::close(file);
}

}  // namespace
}  // namespace headroom
