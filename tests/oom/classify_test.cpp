// Variations of programs' messages, written from knowledge of their sources, and judgements of a
// program's end with and without text.
#include "headroom/oom/classify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

namespace headroom::oom {
namespace {

using namespace headroom::literals;

Judgement judged(std::string_view text, std::optional<int> exit_code = {}) {
  return classify(
      {.text = text, .type_names = {}, .exit_code = exit_code, .signal = {}, .host = {}});
}

std::string verdict(std::string_view text, std::optional<int> exit_code = {}) {
  return to_string(judged(text, exit_code).verdict);
}

// ---- Which message counts

TEST(Classify, TheOomOfOneRankIsTheCauseOfTheOthersTimeouts) {
  const Judgement judgement = judged(
      "[rank1]:[E ProcessGroupNCCL.cpp:607] [Rank 1] Watchdog caught collective operation timeout: "
      "WorkNCCL(SeqNum=12, OpType=ALLREDUCE, Timeout(ms)=600000)\n"
      "[rank0]: Traceback (most recent call last):\n"
      "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has "
      "a total capacity of 79.11 GiB of which 1.50 GiB is free.\n"
      "[rank2]: node01:1:2 [2] NCCL WARN Connection closed by remote peer node02<47861>\n"
      "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n"
      "  exitcode  : -6 (pid: 5277)\n");
  EXPECT_EQ(judgement.verdict, Verdict::gpu_oom);
  EXPECT_EQ(judgement.kind, "cuda_caching_allocator");
  EXPECT_EQ(judgement.asked, 2_GiB);
  EXPECT_EQ(judgement.device, 3);
  EXPECT_GE(judgement.confidence, kCertain);
}

TEST(Classify, AnOomFollowedByStepsDidNotEndTheProgram) {
  EXPECT_EQ(verdict("RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
                    "step 12 loss 0.43 lr 1e-4\nstep 13 loss 0.42 lr 1e-4\n"
                    "ValueError: no such file\n"),
            "unknown");
}

// A program that ended by a fault of its own was run again with smaller batches.
TEST(Classify, AnOomThatWasAvoidedIsNone) {
  for (const char* text : {"out of memory avoided\nbad argument\n", "OOM avoided: 3 rows less\n"})
    EXPECT_THAT(verdict(text), ::testing::AnyOf("not_oom", "unknown")) << text;
}

TEST(Classify, AnOomAfterASurvivedOneCounts) {
  EXPECT_EQ(verdict("WARNING: CUDA out of memory, skipping batch\n"
                    "step 12 loss 0.43\nstep 13 loss 0.42\nstep 14 loss 0.42\n"
                    "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n"),
            "gpu_oom");
}

TEST(Classify, OneBarThatIsDrawnOnceMoreIsNoProgress) {
  EXPECT_EQ(verdict("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
                    "  4%|4   | 40/1000 [00:10<04:00,  4.00it/s]\n"),
            "gpu_oom");
}

TEST(Classify, AdviceIsNoFailure) {
  for (const char* text :
       {"If you run into CUDA out of memory errors, reduce the batch size.",
        "usage: train.py [--batch N]  batch size; lower it to avoid CUDA out of memory",
        "INFO: will skip batches in case of CUDA out of memory",
        "If CUDA out of memory, you can lower the batch size.",
        "note: tiles are used to prevent out of memory errors on the GPU"})
    EXPECT_THAT(verdict(text), ::testing::AnyOf("not_oom", "unknown")) << text;
}

TEST(Classify, SourceLinesAreNoFailure) {
  for (const char* text :
       {"    except torch.cuda.OutOfMemoryError:", "    raise RuntimeError(\"CUDA out of memory\")",
        "    if \"out of memory\" in str(error):", "    print('CUDA out of memory')"})
    EXPECT_THAT(verdict(text), ::testing::AnyOf("not_oom", "unknown")) << text;
}

TEST(Classify, ANamedReasonOutranksThePhraseBeforeIt) {
  for (const char* text : {"Failed GPU memory allocation. (CUDA error: invalid device ordinal).",
                           "cudaMalloc failed: an illegal memory access was encountered",
                           "failed to allocate memory: no space left on device",
                           "mmap: Cannot allocate memory. Please set max locked memory"})
    EXPECT_THAT(verdict(text), ::testing::AnyOf("not_oom", "unknown")) << text;
}

TEST(Classify, AnOomAfterABrokenCardProvesNothing) {
  EXPECT_EQ(verdict("RuntimeError: CUDA error: an illegal memory access was encountered\n"
                    "RuntimeError: CUDA error: out of memory\n"),
            "unknown");
}

TEST(Classify, ASizeBeyondAnyDeviceIsCorrupt) {
  const Judgement judgement =
      judged("MemoryError: Unable to allocate 7.45 EiB for an array with shape (1000000000000,)");
  EXPECT_EQ(judgement.verdict, Verdict::unknown);
  EXPECT_LT(judgement.confidence, kCertain);
}

// ---- Device memory, by who says it

TEST(Classify, KnowsDeviceMemoryByManyNames) {
  for (const char* text :
       {"RuntimeError: CUDA driver error: out of memory",
        "torch.AcceleratorError: CUDA error: out of memory\nCUDA kernel errors might be "
        "asynchronously reported at some other API call",
        "CUDA_ERROR_OUT_OF_MEMORY: out of memory",
        "pycuda._driver.MemoryError: cuMemAlloc failed: out of memory",
        "THCudaCheck FAIL file=/pytorch/THC/THCStorage.cu line=58 error=2 : out of memory",
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "cuFFT error: CUFFT_ALLOC_FAILED", "cusolver error: CUSOLVER_STATUS_ALLOC_FAILED",
        "torch.distributed.DistBackendError: NCCL error, unhandled cuda "
        "error\nncclUnhandledCudaError: "
        "Call to CUDA function failed.\nLast error:\nCuda failure 2 'out of memory'",
        "Resource exhausted: OOM when allocating tensor with shape[64,512] and type float on "
        "/job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc",
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Failed to allocate request for "
        "4.66GiB (5000000000B) on device ordinal 0",
        "RESOURCE_EXHAUSTED: Attempting to allocate 4.66G. That was not possible. There are 2.00G "
        "free.",
        "ggml_cuda_host_malloc\n"
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9000.00 MiB on device 0: "
        "cudaMalloc failed: out of memory",
        "RuntimeError: Native API failed. Native API returns: -5 (PI_ERROR_OUT_OF_RESOURCES)",
        "[virtualMemoryBuffer.cpp::resizePhysical::140] Error Code 2: OutOfMemory (Requested size "
        "was 4294967296 bytes.)",
        "ERROR: Out of GPU memory trying to allocate 1.250 GiB", "CUDA Out of Memory. Sorry.",
        "cuda malloc failed", "Error: not enough GPU memory for the model"})
    EXPECT_EQ(verdict(text), "gpu_oom") << text;
}

TEST(Classify, KnowsHostMemoryByManyNames) {
  for (const char* text :
       {"exit status 137 (out of memory)", "MemoryError", "  File \"a.py\", line 3\nMemoryError\n",
        "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  "
        "std::bad_alloc",
        "OSError: [Errno 12] Cannot allocate memory", "bash: fork: Cannot allocate memory",
        "java.lang.OutOfMemoryError: GC overhead limit exceeded",
        "Error: cannot allocate vector of size 4.5 Gb",
        "FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory",
        "slurmstepd: error: Detected 1 oom_kill event in StepId=12.0.",
        "      State: OUT_OF_MEMORY (exit code 0)", "memory allocation of 34359738368 bytes failed",
        "cv2.error: OpenCV(4.5.1) alloc.cpp:73: error: (-4:Insufficient memory) Failed to allocate "
        "12582912 bytes in function 'OutOfMemoryError'",
        "tensorflow: OOM when allocating tensor with shape[1000,1000] and type float on "
        "/job:localhost/replica:0/task:0/device:CPU:0 by allocator cpu",
        "python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
        "ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate buffer of size 123"})
    EXPECT_EQ(verdict(text), "host_oom") << text;
}

// ---- What sounds like it

TEST(Classify, OtherFailuresAreNotTakenForIt) {
  for (const char* text :
       {"RuntimeError: CUDA error: device-side assert triggered",
        "KeyError: 'word is out of vocabulary'", "IndexError: index out of range in self",
        "RESOURCE_EXHAUSTED: Quota exceeded for quota metric 'Requests'",
        "grpc: RESOURCE_EXHAUSTED: Received message larger than max (4563651 vs. 4194304)",
        "OSError: [Errno 28] No space left on device", "OSError: [Errno 24] Too many open files",
        "ImportError: libgomp.so.1: cannot allocate memory in static TLS block",
        "RuntimeError: CUDA error: too many resources requested for launch",
        "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 98304",
        "ibv_create_cq() failed: Cannot allocate memory",
        "warning: failed to mlock 123-byte buffer: Cannot allocate memory",
        "Segmentation fault (core dumped)", "slurmstepd: *** JOB 1 CANCELLED DUE TO TIME LIMIT ***",
        "INFO: allocating 2 GiB on the GPU", "Memory access fault by GPU node-1: Page not present",
        "ray: The actor is dead. There are some potential root causes. (1) The process is killed "
        "by SIGKILL by OOM killer due to high memory usage. (2) ray stop --force is called.",
        "tests/test_oom.py::test_out_of_memory_handler PASSED", "oom: 0, skipped: 0"})
    EXPECT_THAT(verdict(text), ::testing::AnyOf("not_oom", "unknown")) << text;
}

TEST(Classify, AmbiguousFailuresAreUnknown) {
  for (const char* text :
       {"RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED",
        "RuntimeError: FIND was unable to find an engine to execute this computation", "Killed",
        "died with <Signals.SIGKILL: 9>.", "the runner ended: you may not have enough memory"})
    EXPECT_EQ(verdict(text), "unknown") << text;
}

// It was "unknown", and the job was not tried again with less.
TEST(Classify, AMissingCudnnAlgorithmIsProbablyAnOom) {
  const Judgement judgement =
      classify({.text = "RuntimeError: Unable to find a valid cuDNN algorithm to run convolution"});
  EXPECT_EQ(judgement.verdict, Verdict::gpu_oom);
  EXPECT_LT(judgement.confidence, kCertain) << "a look is worth it";
}

// `is_oom(ValueError("out of memory bank"))` was true.
TEST(Classify, OutOfMemoryAsAnAttributeIsNoOom) {
  for (const char* text : {"ValueError: out of memory bank", "IndexError: out of memory bounds",
                           "index 7 is out of memory slots"})
    EXPECT_THAT(verdict(text), ::testing::AnyOf("not_oom", "unknown")) << text;
  EXPECT_EQ(verdict("RuntimeError: out of memory"), verdict("RuntimeError: out of memory, sorry"));
}

// ---- How it ended

TEST(Classify, AKillNeedsEvidence) {
  Ending ending{
      .text = "step 64 ok\nKilled\n", .type_names = {}, .exit_code = 137, .signal = {}, .host = {}};
  EXPECT_EQ(classify(ending).verdict, Verdict::unknown);
  ending.host = HostKills{.kills_in_group = 0, .kills_on_machine = 3, .kernel_line = {}};
  EXPECT_EQ(classify(ending).verdict, Verdict::unknown);
  ending.host->kills_in_group = 1;
  EXPECT_EQ(classify(ending).verdict, Verdict::host_oom);
  EXPECT_GE(classify(ending).confidence, kCertain);
  ending.host = HostKills{.kills_in_group = {},
                          .kills_on_machine = 1,
                          .kernel_line = "Out of memory: Killed process 12 (python3)"};
  EXPECT_EQ(classify(ending).evidence, "Out of memory: Killed process 12 (python3)");
}

TEST(Classify, AKillSomewhereOnTheMachineIsAHint) {
  const Judgement judgement =
      classify({.text = {},
                .type_names = {},
                .exit_code = {},
                .signal = SIGKILL,
                .host = HostKills{.kills_in_group = {}, .kills_on_machine = 1, .kernel_line = {}}});
  EXPECT_EQ(judgement.verdict, Verdict::host_oom);
  EXPECT_LT(judgement.confidence, kCertain);
}

TEST(Classify, StatusAloneProvesNoOom) {
  for (const int code : {0, 1, 124, 130, 134, 137, 139, 143})
    EXPECT_THAT(verdict("loading shards 3/8, 11.8 GiB resident\n", code),
                ::testing::AnyOf("not_oom", "unknown"))
        << code;
  EXPECT_EQ(verdict("", 139), "not_oom");
  EXPECT_EQ(verdict("", 143), "not_oom");
  EXPECT_EQ(verdict("", 137), "unknown");
}

// A trainer that swallows the exception ends well, and still did not do its work.
TEST(Classify, ASwallowedOomHasALowerConfidence) {
  const Judgement judgement = judged("CUDA out of memory. Tried to allocate 2.00 GiB\n", 0);
  EXPECT_EQ(judgement.verdict, Verdict::gpu_oom);
  EXPECT_LT(judgement.confidence, kCertain);
}

TEST(Classify, TheTypeTellsWhereTheTextDoesNot) {
  const auto by_type = [](std::vector<std::string> names) {
    return classify({.text = {},
                     .type_names = std::move(names),
                     .exit_code = 1,
                     .signal = {},
                     .host = {}})
        .verdict;
  };
  EXPECT_EQ(by_type({"std::runtime_error", "c10::OutOfMemoryError"}), Verdict::gpu_oom);
  EXPECT_EQ(by_type({"std::bad_alloc"}), Verdict::host_oom);
  EXPECT_EQ(by_type({"std::runtime_error"}), Verdict::unknown);
}

TEST(Classify, EmptyTextIsUnknown) {
  EXPECT_EQ(judged("").verdict, Verdict::unknown);
}

TEST(IsOutOfMemory, IsFalseForAGuessAndForOtherFailures) {
  for (const Verdict verdict : {Verdict::gpu_oom, Verdict::host_oom}) {
    EXPECT_TRUE(is_out_of_memory({.verdict = verdict, .confidence = kSure}));
    EXPECT_FALSE(is_out_of_memory({.verdict = verdict, .confidence = kSure - 0.01}));
  }
  EXPECT_FALSE(is_out_of_memory({.verdict = Verdict::not_oom, .confidence = 1}));
  EXPECT_FALSE(is_out_of_memory({.verdict = Verdict::unknown, .confidence = 1}));
}

}  // namespace
}  // namespace headroom::oom
