#include "headroom/oom/detail/plain_words.h"

#include <algorithm>
#include <array>

#include "headroom/oom/detail/rules.h"

namespace headroom::oom::detail {
namespace {

std::size_t first_of(const Words& patterns, std::string_view text) {
  std::size_t first = std::string_view::npos;
  for (const std::string_view pattern : patterns)
    if (const auto found = find(pattern, text)) first = std::min(first, found->begin);
  return first;
}

// "failed to allocate": the first noun after it was refused.
bool refuses_memory(std::string_view text, Span said) {
  const std::string_view behind = text.substr(said.end, 60);
  return first_of(rules().plain.memory, behind) < first_of(rules().plain.other_things, behind);
}

// "memory allocation failed": the noun may be on either side.
bool is_of_memory(std::string_view text, Span said) {
  const std::size_t begin = said.begin > 30 ? said.begin - 30 : 0;
  const std::string_view around = text.substr(begin, said.end + 60 - begin);
  return matches_any(rules().plain.memory, around) &&
         !matches_any(rules().plain.other_things, around);
}

// "cl_error_out_of_memory", "out_of_memory": codes. "test_out_of_memory" names something else.
bool is_code(std::string_view text, Span said) {
  std::size_t begin = said.begin;
  while (begin > 0 && is_word_character(text[begin - 1])) --begin;
  const std::string_view before = text.substr(begin, said.begin - begin);
  constexpr auto kCodes =
      std::to_array<std::string_view>({"*err*", "*status*", "cl_", "gl_", "vk_", "*result*", "e_"});
  return before.empty() || matches_any(kCodes, before);
}

// "out of memory bank", "out of memory bounds": about a part of some memory.
bool is_of_a_part(std::string_view text, Span said) {
  constexpr auto kParts = std::to_array<std::string_view>(
      {"bank*", "bound*", "range*", "region*", "slot*", "cell*", "address*"});
  const std::string_view behind = text.substr(said.end, 16);
  return std::any_of(kParts.begin(), kParts.end(), [&](std::string_view part) {
    const auto found = find(part, behind);
    return found && found->begin == 1 && behind[0] == ' ';
  });
}

// "OutOfMemory" and "out-of-memory" may also name parts of a program: cases, options, handlers.
bool is_name_in_passing(std::string_view text, Span said) {
  constexpr auto kDealsWithIt =
      std::to_array<std::string_view>({"killer", "handl*", "polic*", "protect*", "guard*",
                                       "detect*", "check*", "retr*", "test*", "(oom) killer"});
  const std::string_view words = text.substr(said.begin, said.end - said.begin);
  const std::string_view before = text.substr(0, said.begin);
  const std::string_view behind = text.substr(said.end, 16);
  for (const std::string_view noun : kDealsWithIt)
    if (const auto found = find(noun, behind); found && found->begin == 1) return true;
  if (words == "out of memory") return is_of_a_part(text, said);
  if (words == "out-of-memory")
    return before.ends_with('-') || text.substr(said.end).starts_with('-');
  if (words == "out_of_memory") return !is_code(text, said);
  if (words != "outofmemory") return false;
  if (!is_code(text, said)) return true;
  if (said.begin > 0 && is_word_character(text[said.begin - 1])) return false;
  const std::size_t last = before.find_last_not_of(' ');
  if (last == std::string_view::npos || before[last] == ':') return false;
  return !before.ends_with('(') || (last > 0 && is_word_character(before[last - 1]));
}

struct Search {
  std::string_view text;
  std::size_t first_line, from;
};

template <typename Patterns, typename Accept>
void look_for(const Search& search, const Patterns& patterns, const Accept& accept,
              std::optional<Span>& first) {
  for (const std::string_view pattern : patterns) {
    auto found = find(pattern, search.text, search.first_line, search.from);
    while (found && !accept(*found))
      found = find(pattern, search.text, search.first_line, found->begin + 1);
    if (found && (!first || found->begin < first->begin)) first = found;
  }
}

}  // namespace

std::optional<Span> memory_shortage(std::string_view text, std::size_t first_line,
                                    std::size_t from) {
  constexpr std::size_t kFar = 60;  // "ran out of patience ... memory"
  const Search search{text, first_line, from};
  std::optional<Span> first;
  const auto is_want = [&](Span said) {
    return said.end - said.begin < kFar && !is_name_in_passing(text, said);
  };
  look_for(search, rules().plain.wants, is_want, first);
  look_for(
      search, rules().plain.refusals, [&](Span said) { return refuses_memory(text, said); }, first);
  look_for(
      search, rules().plain.refused, [&](Span said) { return is_of_memory(text, said); }, first);
  return first;
}

bool speaks_of_device(std::string_view text) {
  constexpr auto kWords = std::to_array<std::string_view>(
      {"cuda*",   "gpu*",    "vram",    "hip",       "rocm*",        "xpu",
       "npu*",    "hpu",     "mps",     "metal",     "vulkan",       "hbm",
       "device*", "nvidia*", "cufft*",  "cublas*",   "sycl*",        "opencl*",
       "cudnn*",  "tpu",     "neuron*", "mlx*",      "direct3d*",    "directx*",
       "cupy*",   "nccl*",   "physx",   "tensorrt*", "accelerator*", "显存"});
  return matches_any(kWords, text);
}

bool speaks_of_host(std::string_view text) {
  constexpr auto kWords =
      std::to_array<std::string_view>({"cpu*", "ram", "host*", "system memory", "swap*", "malloc*",
                                       "heap", "new [*", "virtual memory"});
  return matches_any(kWords, text);
}

bool is_error_12(std::string_view text) {
  constexpr auto kWords = std::to_array<std::string_view>(
      {"cannot allocate memory", "errno 12", "errno=12", "errno: 12", "os error 12", "enomem"});
  return matches_any(kWords, text);
}

}  // namespace headroom::oom::detail
