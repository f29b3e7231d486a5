// Texts that hold the words of an out-of-memory and tell of another failure, and out-of-memories
// that hide: variations by hand, each of a class that once was judgement_of wrong.
#include <gtest/gtest.h>

#include "headroom/oom/classify.h"

namespace headroom::oom {
namespace {

struct Ended {
  const char* text;
  std::optional<int> exit_code = 1;
};

Judgement judgement_of(const Ended& ended) {
  return classify({.text = ended.text,
                   .type_names = {},
                   .exit_code = ended.exit_code,
                   .signal = {},
                   .host = {}});
}

void expect_no_alarm(std::initializer_list<Ended> all) {
  for (const Ended& ended : all) {
    const Judgement judgement = judgement_of(ended);
    EXPECT_NE(judgement.verdict, Verdict::gpu_oom) << ended.text;
    EXPECT_NE(judgement.verdict, Verdict::host_oom) << ended.text;
  }
}

void expect(Verdict verdict, std::initializer_list<Ended> all) {
  for (const Ended& ended : all)
    EXPECT_STREQ(to_string(judgement_of(ended).verdict), to_string(verdict)) << ended.text;
}

// ---- Names

TEST(Hostile, TheNameOfAnExceptionIsAWordInOtherErrors) {
  expect_no_alarm({
      {"NameError: name 'OutOfMemoryError' is not defined. Did you mean: 'MemoryError'?"},
      {"AssertionError: expected RuntimeError('CUDA out of memory') but nothing was raised"},
      {"[rank1]: KeyError: 'CUDA_ERROR_OUT_OF_MEMORY'"},
      {"2024-05-01 10:00:00 ERROR worker: AttributeError: 'MemoryError' object has no attribute "
       "'a'"},
      {"jsonschema.exceptions.ValidationError: 'out of memory' is not one of ['retry', 'abort']"},
      {"TypeError: catching classes that do not inherit from BaseException: OutOfMemoryError"},
      {"main.cpp:12:30: error: 'OutOfMemoryError' is not a member of 'c10'", 2},
      {"undefined reference to `c10::OutOfMemoryError::OutOfMemoryError()'"},
      {"E   Failed: DID NOT RAISE <class 'MemoryError'>"},
  });
}

TEST(Hostile, TheNameOfAnExceptionCountsWhereItIsRaised) {
  expect(Verdict::gpu_oom,
         {{"2024-05-01 10:00:00 ERROR worker: torch.OutOfMemoryError: no more room"},
          {"trainer ended by OutOfMemoryError('CUDA out of memory. Tried to allocate 1.00 GiB')"}});
  expect(Verdict::host_oom, {{"Exception in thread Thread-3: MemoryError"},
                             {"Error in sys.excepthook:\nMemoryError\n"}});
}

TEST(Hostile, PartsOfNumbersAndWordsAreNoMatch) {
  expect_no_alarm({
      {"Downloading layer sha256:9bel0004c2: failed: unexpected EOF"},
      {"connect: errno=128"},
      {"cublasGemmEx failed with cublas error 30"},
      {"RuntimeError: Invalid buffer size: -1"},
      {"CUresult error result=201 file=x.cpp"},
      {"the shuffle buffer of the input ran out of memory cards to read\nValueError: bad record"},
      {"error code is 2070011: bad stream"},
  });
}

// ---- Flags, settings, lists

TEST(Hostile, AFlagThatIsOffSaysThatItDidNotHappen) {
  expect_no_alarm({
      {R"({"oomKilled": null, "exitCode": 1})"},
      {"low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\noom_group_kill 0\nValueError: bad value"},
      {"container_oom_events_total 0"},
      {"out_of_memory_errors: 0, timeouts: 3"},
      {"exit status: 3 (out-of-memory: no, timeout: no, nan: yes)", 3},
      {R"(last_terminated_reason{reason="OOMKilled"} 0)"},
      {"NAME      STATE    OOMKILLED   EXIT\ntrainer   exited   false       1"},
  });
}

TEST(Hostile, InAListOfPodsAnotherOneWasKilled) {
  const char* pods =
      "proxy-77c   0/1   OOMKilled   9 (3m ago)   9d\n"
      "trainer-1   0/1   Error       2 (1m ago)   3h\n";
  expect_no_alarm({{pods}});
  expect(Verdict::host_oom, {{"trainer-1   0/1   OOMKilled   2 (30s ago)   4m\n", {}}});
}

TEST(Hostile, SettingsAndListsAreNoEvents) {
  expect_no_alarm({
      {"oom_message: \"CUDA out of memory\"\nValueError: x"},
      {"retry_on:\n  - CUDA out of memory\n  - NCCL timeout\nmodel: big\nKeyError: 'lr'"},
      {"errors_to_retry = ('CUDA out of memory', 'NCCL')\nZeroDivisionError: division by zero"},
      {"job state should be one of COMPLETED, FAILED, OUT_OF_MEMORY, got: RUNNIN"},
      {"Error codes:\n  1  cudaErrorInvalidValue\n  2  cudaErrorMemoryAllocation\n", 0},
      {"CUDA_ERROR_OUT_OF_MEMORY = 2\nCUDA_ERROR_DEINITIALIZED = 4\n"},
      {"known failures: [oom] CUDA_ERROR_OUT_OF_MEMORY(2) CUDA_ERROR_ILLEGAL_ADDRESS(700)\n"
       "CUDA error 700: an illegal memory access was encountered"},
      {"java -XX:OnOutOfMemoryError=kill -jar x.jar\nError: Unable to access jarfile x.jar"},
      {"Retry policy: retry when stderr contains \"CUDA out of memory\"\nTypeError: x"},
  });
}

TEST(Hostile, HelpTextsAndWrongArgumentsAreNoFailureOfMemory) {
  expect_no_alarm({
      {"usage: tool [options]\n\noptions:\n  --retry N   start again after CUDA out of memory\n",
       64},
      {"usage: fit [-h] [--on-oom {retry,abort}]\n"
       "fit: error: argument --on-oom: invalid choice: 'CUDA out of memory'",
       2},
      {"  --tile N     lower it when CUDA is out of memory\nerror: unknown option --tiel"},
      {"lab: --on-out-of-memory expects one argument", 2},
  });
}

// ---- Other things that run out

TEST(Hostile, OtherAllocationsAreNoMemory) {
  expect_no_alarm({
      {"salloc: error: Failed to allocate resources: Invalid generic resource (gres) "
       "specification"},
      {"could not allocate port 29500: address in use"},
      {"Failed to allocate IP address for pod: no free addresses in memory pool 10.0.0.0"},
      {"cannot allocate license for feature 'train'"},
      {"Unable to allocate block device quota: limit reached"},
      {"could not allocate a tty: Operation not permitted"},
      {"allocation failed: account has no hours left"},
      {"sbatch: error: Memory request exceeds the partition's memory limit"},
      {"Sort exceeded memory limit of 104857600 bytes, but did not opt in to external sorting."},
      {"systemd[1]: Started Userspace Out-Of-Memory (OOM) Killer.\nfailed"},
      {"EAL: Cannot get a virtual area: Cannot allocate memory"},
      {"0/5 nodes are available: 5 Insufficient memory, 2 Insufficient nvidia.com/gpu."},
      {"error: local memory limit exceeded (98304) in _Z3foov"},
      {"psycopg2.errors.OutOfMemory: out of shared memory"},
      {"cudaErrorLaunchOutOfResources: too many resources requested for launch"},
  });
  expect(Verdict::host_oom, {{"Error: could not allocate 3.2 GB for the index"},
                             {"unable to allocate buffer of 2147483648 bytes", 134}});
}

TEST(Hostile, LockedMemoryIsALimit) {
  expect_no_alarm({
      {"  File \"server.py\", line 4, in <module>\n    io_uring_queue_init(1024, ring, 0)\n"
       "OSError: [Errno 12] Cannot allocate memory"},
      {"mlockall failed: Cannot allocate memory"},
      {"libibverbs: Warning: RLIMIT_MEMLOCK is 65536 bytes.\nucp: Cannot allocate memory"},
      {"perf_event_open: mmap failed: Cannot allocate memory; raise perf_event_mlock_kb"},
      {"Loss.cu:250: nll_loss_forward: block: [0,0,0], thread: [5,0,0] Assertion `t < n_classes` "
       "failed."},
  });
}

// ---- What a log quotes

TEST(Hostile, CodeInATracebackIsNoMessage) {
  expect_no_alarm({
      {"  File \"/app/a.py\", line 5, in run\n    note = \"CUDA out of memory. Tried\"\n"
       "           ~~~~^^^^\nIndexError: list index out of range"},
      {"ERROR app |   File \"/app/a.py\", line 9, in g\n"
       "ERROR app |     if 'CUDA out of memory' in str(e): raise\nERROR app | ValueError: nope"},
      {"---> 12     return 1 / 0  # CUDA out of memory\n     13     f('std::bad_alloc')\n"
       "ZeroDivisionError: division by zero"},
      {"╭──── Traceback (most recent call last) ────╮\n"
       "│ ❱ 31 │   raise Boom(\"CUDA out of memory\")  │\n"
       "╰───────────────────────────────────────────╯\nBoom: stop"},
      {"\tat org.x.OutOfMemoryError.handle(OutOfMemoryError.java:12)\njava.lang.Error: closed"},
      {"goroutine 1:\nmain.handleOutOfMemory(0xc000)\npanic: index out of range", 2},
  });
}

TEST(Hostile, NamesOfTestsAreNoMessages) {
  expect_no_alarm({
      {"tests/test_mem.py::test_cuda_out_of_memory FAILED\n"
       "FAILED tests/test_mem.py::test_cuda_out_of_memory - assert 1 == 2"},
      {" 3/12 Test  #3: cuda_out_of_memory ......***Failed    0.12 sec", 8},
      {"[ RUN      ] Alloc.ReportsOutOfMemory\nalloc_test.cc:12: Failure\n"
       "Expected: allocate(-1) throws an exception of type std::bad_alloc.\n"
       "[  FAILED  ] Alloc.ReportsOutOfMemory (0 ms)"},
      {"--- FAIL: TestOutOfMemory (0.00s)\n    mem_test.go:12: got 3, want 4"},
      {"test alloc::out_of_memory ... FAILED\n  left: OutOfMemory\n right: Timeout", 101},
      {"not ok 3 handles CUDA out of memory"},
      {"  1) retries on CUDA out of memory:\n     AssertionError: expected 1 to equal 2"},
  });
}

TEST(Hostile, AFailedTestMayBeOutOfMemoryItself) {
  expect(Verdict::gpu_oom,
         {{"E       torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
           "FAILED tests/test_m.py::test_forward - torch.OutOfMemoryError: CUDA out of mem..."}});
}

TEST(Hostile, QuotedTextIsNoMessage) {
  expect_no_alarm({
      {"logs/2024-11-02.log:88:RuntimeError: CUDA out of memory. Tried to allocate 1.50 GiB"},
      {"3f2a9bc1 Avoid CUDA out of memory in eval (#123)\n0b1c2d3e Handle std::bad_alloc\n"},
      {"The previous run ended with CUDA out of memory; batch 16 now\nFileNotFoundError: x"},
      {"No CUDA out of memory occurred in 400 steps\nKeyError: 3"},
      {"writing report to runs/cuda-out-of-memory/report.txt\nOSError: Read-only file system"},
      {"Answer: RuntimeError: CUDA out of memory means that the card is full.\nValueError: nan"},
      {"user: my job says \"CUDA out of memory\", help\nValueError: nan"},
      {"label: out of memory\npred: timeout\nValueError: x"},
      {"ok: simulated CUDA out of memory was retried\nValueError: x"},
      {"wandb: ERROR Error while calling W&B API: OOM command not allowed (<Response [500]>)"},
  });
}

TEST(Hostile, TheKernelMayHaveKilledAnother) {
  expect_no_alarm(
      {{"Out of memory: Killed process 9921 (chrome) total-vm:41233012kB\n"
        "NVRM: Xid (PCI:0000:65:00): 31, MMU Fault\n"
        "RuntimeError: CUDA error: an illegal memory access was encountered"}});
  expect_no_alarm({{"(raylet) 2 Workers killed due to memory pressure (OOM)\nKeyError: 'label'"},
                   {"881|COMPLETED|0:0\n882|OUT_OF_MEMORY|0:125\n883|FAILED|1:0\n"}});
  expect(Verdict::host_oom, {{"Out of memory: Killed process 4412 (python3) total-vm:90000000kB\n"
                              "[rank1]: NCCL WARN Connection closed by remote peer\n"}});
}

// ---- What was survived

TEST(Hostile, ASearchGoesOnAfterOneThatFailed) {
  expect_no_alarm({
      {"Runtime error during autotuning:\nCUDA error: out of memory. Tried to allocate 2.00 GiB.\n"
       "Ignoring this choice.\nTypeError: bad op"},
      {"[W 2024-01-02 10:00:00,000] Trial 3 failed with parameters: {'bs': 512} because of the "
       "following error: RuntimeError('CUDA out of memory. Tried to allocate 1 GiB').\n"
       "[I 2024-01-02 10:09:00,000] Trial 4 finished with value: 0.6\nKeyError: 'best'"},
      {"{\"batch\": 64, \"status\": \"oom\", \"error\": \"CUDA out of memory\"}\n"
       "{\"batch\": 32, \"status\": \"ok\"}\n{\"batch\": 16, \"status\": \"ok\"}\nKeyError: 'a'"},
      {"CUDA out of memory at batch size 64 -> 32\nValueError: bad metric"},
      {"[17/400] bs=512 failed: CUDA out of memory. Tried to allocate 8.00 GiB\n"
       "[18/400] bs=32 ok 10.2 s\nPermissionError: [Errno 13] Permission denied: 'out.csv'"},
      {"RuntimeError: CUDA out of memory. Tried to allocate 1.00 GiB\nRun k3 errored\n"
       "wandb: Agent Starting Run: k4 with config:\nepoch 1 loss 0.3\n",
       0},
      {"profiling batch 256 ... CUDA out of memory\nlargest batch: 128\n", 0},
  });
  expect(Verdict::gpu_oom,
         {{"[W 2024-01-02 10:00:00,000] Trial 3 failed because of the following error: "
           "RuntimeError('CUDA out of memory. Tried to allocate 1 GiB',)\n"}});
}

constexpr const char* kRaised =
    "Traceback (most recent call last):\n  File \"a.py\", line 3, in <module>\n    f()\n"
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n";

TEST(Hostile, ASummaryOrABarDrawnAgainIsNoProgress) {
  const std::string raised = kRaised;
  std::string bars = "450/1000 [00:10<00:12, 44it/s, loss=2.0]\n" + raised;
  for (const char* speed : {"41", "40", "39", "38", "37", "36"})
    bars += std::string(" 45%|####5     | 450/1000 [00:11<00:12, ") + speed + "it/s, loss=2.0]\n";
  const std::string summary =
      "step 11 loss 2.0\n" + raised +
      "wandb: Run summary:\nwandb: train/step 11\nwandb: epoch 3\nwandb: loss 2.01\n";
  const std::string other_rank =
      "[rank2]: torch.OutOfMemoryError: CUDA out of memory.\n"
      "[rank0]: step 12 loss 2.1\n[rank0]: step 13 loss 2.0\n";
  expect(Verdict::gpu_oom, {{bars.c_str()}, {summary.c_str()}, {other_rank.c_str()}});
}

TEST(Hostile, TheLastWordOfAFailedRunWasNotSurvived) {
  const std::string text =
      std::string("WARNING: CUDA out of memory, reducing batch size to 4\n") + kRaised;
  expect(Verdict::gpu_oom, {{text.c_str()}});
}

TEST(Hostile, StepsThatRiseShowThatItWasSurvived) {
  const std::string text =
      std::string("step 11 loss 2.0\n") + kRaised + "step 0 loss 9\nstep 1 loss 8\nKeyError: 3\n";
  expect_no_alarm({{text.c_str()}});
}

TEST(Hostile, RecommendationsAreNoEvents) {
  expect(Verdict::gpu_oom,
         {{"CUDA out of memory. Try reducing batch size or skipping samples that are too long."},
          {"[3/3] failed: CUDA out of memory. Tried to allocate 2.00 GiB"}});
}

// It tried again with less each time; what ended it is another matter.
TEST(Hostile, TensorFlowAsksForLess) {
  const char* asks =
      "E tensorflow/stream_executor/cuda/cuda_driver.cc:828] failed to allocate 159.69M "
      "(167444480 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory\n";
  expect(Verdict::gpu_oom, {{asks}});
  const std::string ended = std::string(asks) + "ValueError: logits must be broadcastable\n";
  expect_no_alarm({{ended.c_str()}});
}

TEST(Hostile, AnOomBeforeAnEndWithoutAnErrorIsUnknown) {
  expect(Verdict::unknown, {{"CUDA out of memory. Tried to allocate 2 GiB\nreport written\n", 0}});
}

// ---- On which side

TEST(Hostile, PinnedMemoryIsTheHosts) {
  for (const char* text :
       {"  File \"x/pin_memory.py\", line 68, in pin_memory\n    return data.pin_memory(device)\n"
        "RuntimeError: CUDA error: out of memory",
        "RuntimeError: Caught RuntimeError in pin memory thread for device 0.\n"
        "RuntimeError: CUDA error: out of memory",
        "cudaHostAlloc(&p, n): out of memory", "cudaMallocHost failed: out of memory"}) {
    const Judgement judgement = judgement_of({text});
    EXPECT_EQ(judgement.verdict, Verdict::host_oom) << text;
    EXPECT_LT(judgement.confidence, kCertain) << text;
  }
}

// The thread that pins first makes itself a context on a card that is full.
TEST(Hostile, TheInnermostCallSaysWhichMemory) {
  expect(Verdict::gpu_oom,
         {{"  File \"x/pin_memory.py\", line 21, in _pin_memory_loop\n    set_device(device_id)\n"
           "  File \"x/cuda/__init__.py\", line 263, in set_device\n    _cuda_setDevice(device)\n"
           "RuntimeError: CUDA error: out of memory"}});
}

TEST(Hostile, ProgramsWithoutACardRunOutOfTheHostsMemory) {
  expect(Verdict::host_oom,
         {{"mysqld: Out of memory (Needed 128917504 bytes)"},
          {"Out of memory."},
          {"CPLEX Error  1001: Out of memory."},
          {"fatal: Out of memory, realloc failed", 128},
          {"rsync: out of memory in flist_expand [sender]", 22},
          {"cc1: out of memory allocating 1073741824 bytes after a total of 9035776 bytes"},
          {"a.rb:3:in `initialize': failed to allocate memory (NoMemoryError)"},
          {"prog: Heap exhausted;\nprog: Current maximum heap size is 1073741824 bytes.", 251},
          {"ImportError: DLL load failed while importing _C: The paging file is too small"},
          {"OSError: [WinError 1455] 页面文件太小，无法完成操作。"},
          {"OSError: [Errno 12] Nicht genügend Hauptspeicher verfügbar"},
          {"Erreur : impossible d'allouer un vecteur de taille 4.5 Go"},
          {"Error: vector memory limit of 16.0 Gb reached, see mem.maxVSize()"}});
}

TEST(Hostile, KnowsOutOfMemoryMessagesBeyondTheRules) {
  expect(
      Verdict::gpu_oom,
      {{"RuntimeError: MUSA out of memory. Tried to allocate 20.00 MiB."},
       {"RuntimeError: [metal::malloc] Unable to allocate 48736917632 bytes."},
       {"XlaRuntimeError: INTERNAL: Failed to allocate 4294967296 bytes for new constant"},
       {"Cuda driver error 2 in call at file 'geryon/nvd_memory.h' in line 501."},
       {"time=2025-01-01 level=INFO msg=\"ggml_backend_cuda_buffer_type_alloc_buffer: "
        "allocating 9000.00 MiB on device 0: cudaMalloc failed: out of memory\""},
       {"[LightGBM] [Fatal] [CUDA] out of memory /tmp/src/x.cpp 123", 134},
       {"(GPU 3) out of memory"},
       {"MemoryError: ('Error allocating 3276800 bytes of device memory (out of memory).', \"you "
        "might consider using 'theano.shared(..., borrow=True)'\")"},
       {"RuntimeError: Not enough memory, use lower resolution. Need: 3.1GB free, Have:2.9GB free"},
       {"vkAllocateMemory failed -2", 139},
       {"OPTIX_ERROR_DEVICE_OUT_OF_MEMORY in optixDeviceContextCreate"},
       {"ERROR: Insufficient memory on accelerator (src/GPU/gpu_extra.h:38)"},
       {"RuntimeError: nrt_load_collectives status=4 message=\"Allocation Failure\""},
       {"RuntimeError: worker 3 failed: cudaMalloc returned \"out of memory\""}});
}

// No word of a device stands in the first line; the second one is known.
TEST(Hostile, AKnownMessageOutranksPlainWordsBesideIt) {
  expect(Verdict::gpu_oom, {{"Fatal: out of memory\nVK_ERROR_OUT_OF_DEVICE_MEMORY\n"}});
}

TEST(Hostile, AKilledCompilerIsUncertain) {
  for (const char* text : {"nvcc error   : 'cicc' died due to signal 9 (Kill signal)",
                           "c++: fatal error: Killed signal terminated program cc1plus"})
    EXPECT_LT(judgement_of({text}).confidence, kCertain) << text;
}

}  // namespace
}  // namespace headroom::oom
