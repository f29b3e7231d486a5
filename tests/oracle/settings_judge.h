// PyTorch's own parser of PYTORCH_CUDA_ALLOC_CONF, from libc10.so and libc10_cuda.so of the wheel,
// as the judge of headroom/allocator/settings.
//
// The parser keeps its state for the life of a process, reads the variables at its first use, and
// chooses the backend while its library loads. So each text gets a process of its own: a forked
// child for most, a freshly started one (this same program with --answer) where a backend is named.
// No GPU is needed; the two questions the parser has for the CUDA runtime are answered in the .cpp.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/oracle/settings_texts.h"

namespace headroom::testing {

inline constexpr const char* kVariables[] = {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF",
                                             "PYTORCH_ALLOC_CONF"};
using Environment = std::map<std::string, std::string>;

// Sizes of cards for which the judge says what an address reserve comes to.
inline constexpr std::size_t kTotals[] = {0, std::size_t{1} << 40};

// What the parser answers; it crosses a pipe.
struct Answer {
  bool accepted = false;  // all else counts only then
  bool async_backend = false;
  std::uint64_t large_segment = 0, max_split = 0, max_non_split = 0;
  std::uint64_t divisions[16] = {};
  double gc_threshold = 0, memory_fraction = 0;
  bool expandable = false, release_lock = false, graph_reuse = false, host_register = false,
       background_threads = false;
  std::uint64_t register_threads = 0, reserve_segment_mib = 0;
  // Since 2.12
  bool throw_on_oom = false, catch_all = false;
  std::uint64_t max_round_threshold = SIZE_MAX, max_cached_size = SIZE_MAX;
  // Address space for no class and each of kClasses, on cards without and with memory.
  double reserve[1 + std::size(kClasses)][std::size(kTotals)] = {};
};

// After the variable has `text`, and then each change by setAllocatorSettings.
[[nodiscard]] Answer ask_fork(const std::string& text,
                              const std::vector<std::string>& changes = {});
[[nodiscard]] Answer ask_new_program(const Environment& environment);

// The options that the parser knows.
[[nodiscard]] std::set<std::string> options_of_the_parser();

}  // namespace headroom::testing
