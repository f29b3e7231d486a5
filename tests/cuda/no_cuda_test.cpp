// A process without a card: the answers it gets, and that looking for a card breaks nothing. The
// library that talks to cards is built on every machine; here it is opened on a machine without
// any.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/base/error.h"
#include "headroom/cuda/absence.h"
#include "headroom/cuda/load.h"

namespace headroom {
namespace {

using ::testing::HasSubstr;

TEST(NoCuda, AnswersEveryQuestionOfTheTable) {
  const CudaFunctions& none = no_cuda::functions();
  EXPECT_EQ(none.name, "no_cuda");
  EXPECT_EQ(none.device_count(), 0);
  EXPECT_FALSE(none.has_context(0));
  EXPECT_NO_THROW(none.empty_host_cache());
  EXPECT_NO_THROW(none.clear_workspaces());
  EXPECT_THROW(none.memory_info(0), UnavailableError);
  EXPECT_THROW(none.set_memory_fraction(0, 0.5), UnavailableError);
  EXPECT_THROW(none.memory_fraction(0), UnavailableError);
  EXPECT_THROW(none.synchronize(0), UnavailableError);
  EXPECT_THROW(none.snapshot(0), UnavailableError);
  EXPECT_THROW(none.record(0, nullptr), UnavailableError);
}

TEST(CudaFunctionsOfThisProcess, AreThoseOfAbsenceWithoutLibTorchsCudaPart) {
  EXPECT_EQ(&cuda_functions(), &no_cuda::functions());
  EXPECT_THAT(cuda_functions().why_absent(), HasSubstr("libtorch_cuda.so"));
}

// Built where no GPU is, the library opens there, has its table, and says that there is no card.
TEST(CudaLibrary, OpensWithoutACardAndSaysSo) {
  void* const library = dlopen(HEADROOM_CUDA_LIBRARY, RTLD_NOW);
  ASSERT_NE(library, nullptr) << dlerror();
  using Entry = const CudaFunctions* (*)(int);
  const auto entry = reinterpret_cast<Entry>(dlsym(library, "headroom_cuda_functions"));
  ASSERT_NE(entry, nullptr);
  const CudaFunctions* const table = entry(kCudaFunctionsVersion);
  ASSERT_NE(table, nullptr);
  EXPECT_EQ(table->name, "cuda");
  if (table->device_count() > 0) GTEST_SKIP() << "this machine has a GPU";
  EXPECT_THAT(table->why_absent(), HasSubstr("no card"));
  EXPECT_THROW((void)table->snapshot(0), UsageError);
}

TEST(CudaLibrary, RefusesACallerOfAnotherVersion) {
  void* const library = dlopen(HEADROOM_CUDA_LIBRARY, RTLD_NOW);
  ASSERT_NE(library, nullptr) << dlerror();
  using Entry = const CudaFunctions* (*)(int);
  const auto entry = reinterpret_cast<Entry>(dlsym(library, "headroom_cuda_functions"));
  EXPECT_EQ(entry(kCudaFunctionsVersion + 1), nullptr);
}

TEST(LoadCuda, AnswersWithTheReasonInsteadOfACrash) {
  const CudaFunctions& missing = load_cuda_from("/nonexistent/libheadroom_cuda.so");
  EXPECT_EQ(missing.name, "no_cuda");
  EXPECT_THAT(missing.why_absent(), HasSubstr("/nonexistent/libheadroom_cuda.so"));

  const CudaFunctions& other = load_cuda_from("libc.so.6");
  EXPECT_EQ(other.name, "no_cuda");
  EXPECT_THAT(other.why_absent(), HasSubstr("not Headroom's CUDA part"));
}

TEST(LoadCuda, NamesTheDriverThatIsMissing) {
  if (dlopen("libcuda.so.1", RTLD_LAZY) != nullptr) GTEST_SKIP() << "this machine has a driver";
  EXPECT_EQ(load_cuda().name, "no_cuda");
  EXPECT_THAT(cuda_functions().why_absent(), HasSubstr("no NVIDIA driver"));
}

}  // namespace
}  // namespace headroom
