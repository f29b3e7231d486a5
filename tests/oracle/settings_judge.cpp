#include "tests/oracle/settings_judge.h"

#include <c10/core/AllocatorConfig.h>
#include <c10/cuda/CUDAAllocatorConfig.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

// A driver new enough for cudaMallocAsync, and no card to inspect.
extern "C" cudaError_t cudaDriverGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
extern "C" cudaError_t cudaGetDeviceCount(int* count) {
  *count = 0;
  return cudaSuccess;
}

namespace headroom::testing {
namespace {

using Shared = c10::CachingAllocator::AcceleratorAllocatorConfig;
using Cuda = c10::cuda::CUDACachingAllocator::CUDAAllocatorConfig;

// What the versions after 2.11 have besides.
template <typename SharedConfig, typename CudaConfig>
void add_newer_values(Answer& answer) {
  if constexpr (requires { CudaConfig::throw_on_cudamalloc_oom(); }) {
    answer.throw_on_oom = CudaConfig::throw_on_cudamalloc_oom();
    answer.catch_all = CudaConfig::pinned_free_catch_all();
  }
  if constexpr (requires { SharedConfig::pinned_max_cached_size(); }) {
    answer.max_round_threshold = SharedConfig::pinned_max_round_threshold();
    answer.max_cached_size = SharedConfig::pinned_max_cached_size();
  }
  if constexpr (requires { CudaConfig::expandable_segments_reserve_decision("", 0); }) {
    for (std::size_t row = 0; row < std::size(answer.reserve); ++row)
      for (std::size_t i = 0; i < std::size(kTotals); ++i) {
        const std::string name = row == 0 ? "" : kClasses[row - 1];
        const auto found = CudaConfig::expandable_segments_reserve_decision(name, kTotals[i]);
        answer.reserve[row][i] =
            found.reserve_bytes ? static_cast<double>(*found.reserve_bytes) : -1;
      }
  }
}

Answer current_values() {
  Answer answer;
  answer.accepted = true;
  answer.async_backend = c10::cuda::CUDACachingAllocator::get()->name() == "cudaMallocAsync";
  answer.large_segment = Shared::large_segment_size();
  answer.max_split = Shared::max_split_size();
  answer.max_non_split = Shared::max_non_split_rounding_size();
  const auto& divisions = Shared::roundup_power2_divisions();
  std::copy_n(divisions.begin(), 16, answer.divisions);
  answer.gc_threshold = Shared::garbage_collection_threshold();
  answer.memory_fraction = Cuda::per_process_memory_fraction();
  answer.expandable = Shared::use_expandable_segments();
  answer.release_lock = Cuda::release_lock_on_cudamalloc();
  answer.graph_reuse = Cuda::graph_capture_record_stream_reuse();
  answer.host_register = Cuda::pinned_use_cuda_host_register();
  answer.background_threads = Shared::pinned_use_background_threads();
  answer.register_threads = Cuda::pinned_num_register_threads();
  answer.reserve_segment_mib = Cuda::pinned_reserve_segment_size_mb();
  add_newer_values<Shared, Cuda>(answer);
  return answer;
}

// The state after the variables of this process (`at_start` empty) and then each change.
Answer ask_here(const std::vector<std::string>& changes) {
  try {
    static_cast<void>(current_values());
    for (const std::string& change : changes) c10::CachingAllocator::setAllocatorSettings(change);
    return current_values();
  } catch (const std::exception&) {
    return {};
  }
}

[[noreturn]] void answer_and_leave(int pipe, const Answer& answer) {
  const ssize_t written = write(pipe, &answer, sizeof answer);
  _exit(written == sizeof answer ? 0 : 1);
}

void set_environment(const Environment& environment) {
  for (const char* name : kVariables) unsetenv(name);
  for (const auto& [name, text] : environment) setenv(name.c_str(), text.c_str(), 1);
}

// Runs `child(pipe)` in a forked process. A child that dies without an answer has refused: that is
// how a malformed text ends a program while the library loads.
template <typename Child>
Answer ask_child(Child child) {
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error("no pipe");
  const pid_t pid = fork();
  if (pid < 0) throw std::runtime_error("no child process");
  if (pid == 0) {
    close(ends[0]);
    const rlimit no_core{0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
    child(ends[1]);
    _exit(1);
  }
  close(ends[1]);
  Answer answer;
  const bool answered = read(ends[0], &answer, sizeof answer) == sizeof answer;
  close(ends[0]);
  int status = 0;
  waitpid(pid, &status, 0);
  if (!answered && !WIFSIGNALED(status)) throw std::runtime_error("the judge gave no answer");
  return answered ? answer : Answer{};
}

}  // namespace

Answer ask_fork(const std::string& text, const std::vector<std::string>& changes) {
  return ask_child([&](int pipe) {
    set_environment({{"PYTORCH_CUDA_ALLOC_CONF", text}});
    answer_and_leave(pipe, ask_here(changes));
  });
}

Answer ask_new_program(const Environment& environment) {
  return ask_child([&](int pipe) {
    set_environment(environment);
    const std::string number = std::to_string(pipe);
    execl("/proc/self/exe", "settings_oracle_test", "--answer", number.c_str(), nullptr);
  });
}

std::set<std::string> options_of_the_parser() {
  return {Shared::getKeys().begin(), Shared::getKeys().end()};
}

// The program starts itself for an answer of a fresh process.
int run(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "--answer") == 0)
    answer_and_leave(std::atoi(argv[2]), ask_here({}));
  // The backend of this process was chosen while it loaded: it must be the native one.
  for (const char* name : kVariables) {
    if (std::getenv(name) == nullptr) continue;
    set_environment({});
    execv("/proc/self/exe", argv);
    return 1;
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

}  // namespace headroom::testing

int main(int argc, char** argv) {
  return headroom::testing::run(argc, argv);
}
