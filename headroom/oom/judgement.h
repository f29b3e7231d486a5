// What a failure was: memory of a card, memory of the host, something else, or not to be told.
#pragma once

#include <optional>
#include <string>

#include "headroom/base/bytes.h"

namespace headroom::oom {

enum class Verdict {
  gpu_oom,
  host_oom,
  not_oom,
  unknown,  // the honest answer where text and system prove neither
};
[[nodiscard]] const char* to_string(Verdict verdict);

struct Judgement {
  Verdict verdict = Verdict::unknown;
  std::string kind;       // "cuda_caching_allocator", "cublas", "python_memoryerror", ...
  double confidence = 0;  // 0 to 1; below 0.8 somebody should look himself
  std::string evidence;   // the line that proved it, as it was printed
  std::optional<Bytes> asked, total, free;
  std::optional<int> device;  // as the program numbers them
};

}  // namespace headroom::oom
