#include "headroom/libtorch/failure.h"

#include <c10/util/Exception.h>
#include <gmock/gmock.h>

#include <functional>
#include <new>
#include <stdexcept>

#include "headroom/sim/simulate.h"

namespace headroom::libtorch {
namespace {

using oom::Verdict;

oom::Judgement judged(const std::function<void()>& failing) {
  try {
    failing();
  } catch (...) {
    return judge(std::current_exception());
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

oom::Judgement judged_text(const std::string& text) {
  return judged([&] { TORCH_CHECK(false, text); });
}

TEST(Failure, TheAllocatorsErrorHasItsFigures) {
  const sim::Simulation box = sim::simulate("1GiB");
  const oom::Judgement judgement =
      judged([&] { (void)at::empty({3 << 28}, at::TensorOptions(box.device(0))); });
  EXPECT_EQ(judgement.verdict, Verdict::gpu_oom);
  EXPECT_EQ(judgement.confidence, 1);
  EXPECT_EQ(judgement.asked, Bytes(std::int64_t{3} << 30));
  EXPECT_EQ(judgement.device, 0);
}

TEST(Failure, CudasErrorTwoIsMemory) {
  const auto with_code = [](int code) {
    return judged([code] {
      throw c10::AcceleratorError({"f", "f.cpp", 1}, code, "CUDA error: something of the driver's");
    });
  };
  EXPECT_EQ(with_code(2).verdict, Verdict::gpu_oom);
  EXPECT_NE(with_code(700).verdict, Verdict::gpu_oom);
}

TEST(Failure, LibrariesSayItInTheirTexts) {
  for (const char* text :
       {"CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
        "cusolver error: CUSOLVER_STATUS_ALLOC_FAILED, when calling `cusolverDnCreate(handle)`",
        "NCCL error: unhandled cuda error, NCCL version 2.27.5\nncclUnhandledCudaError: Call to "
        "CUDA "
        "function failed.\nLast error:\nCuda failure 2 'out of memory'"})
    EXPECT_EQ(judged_text(text).verdict, Verdict::gpu_oom) << text;
  const oom::Judgement host = judged_text(
      "[enforce fail at alloc_cpu.cpp:121] err == 0. DefaultCPUAllocator: can't allocate memory: "
      "you "
      "tried to allocate 400000000000 bytes. Error code 12 (Cannot allocate memory)");
  EXPECT_EQ(host.verdict, Verdict::host_oom);
  EXPECT_EQ(host.asked, Bytes(400000000000));
  EXPECT_EQ(judged([] { throw std::bad_alloc(); }).verdict, Verdict::host_oom);
}

TEST(Failure, OthersAreNone) {
  for (const char* text : {"CUDA error: an illegal memory access was encountered",
                           "CUDA error: unspecified launch failure",
                           "mat1 and mat2 shapes cannot be multiplied (4x8 and 9x2)"})
    EXPECT_FALSE(oom::is_out_of_memory(judged_text(text))) << text;
  EXPECT_FALSE(oom::is_out_of_memory(judged([] { throw 7; })));
  EXPECT_EQ(judge(nullptr).verdict, Verdict::unknown);
}

TEST(Failure, CausesCount) {
  const auto wrapped = [](const std::function<void()>& inner) {
    return judged([&] {
      try {
        inner();
      } catch (...) {
        std::throw_with_nested(std::runtime_error("training failed"));
      }
    });
  };
  EXPECT_EQ(wrapped([] { throw std::bad_alloc(); }).verdict, Verdict::host_oom);
  EXPECT_EQ(
      wrapped([] { TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory."); }).verdict,
      Verdict::gpu_oom);
  EXPECT_FALSE(oom::is_out_of_memory(wrapped([] { throw std::logic_error("a bug"); })));
}

}  // namespace
}  // namespace headroom::libtorch
