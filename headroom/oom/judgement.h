// The cause of a failure: memory of a card, memory of the host, something else, or unknown.
#pragma once

#include <optional>
#include <string>

#include "headroom/base/bytes.h"

namespace headroom::oom {

enum class Verdict {
  gpu_oom,
  host_oom,
  not_oom,
  unknown,  // neither the text nor the system proves a cause
};
[[nodiscard]] const char* to_string(Verdict verdict);

struct Judgement {
  Verdict verdict = Verdict::unknown;
  std::string kind;       // "cuda_caching_allocator", "cublas", "python_memoryerror", ...
  double confidence = 0;  // 0 to 1; below kCertain a person should check
  std::string evidence;   // the line that proves it, as printed
  std::optional<Bytes> asked, total, free;
  // Memory that PyTorch's allocator held and could not use for the request: it gives back what it
  // can before it refuses.
  std::optional<Bytes> cached;
  std::optional<int> device;  // as the program numbers its devices
};

// Below this confidence the verdict is a guess, on which no program should act.
inline constexpr double kSure = 0.65;
// Below this confidence a person should check, and the system's record of a kill outweighs a text.
inline constexpr double kCertain = 0.8;

// True for an out-of-memory, of a card or of the host, that is sure enough to act on.
[[nodiscard]] bool is_out_of_memory(const Judgement& judgement);

}  // namespace headroom::oom
