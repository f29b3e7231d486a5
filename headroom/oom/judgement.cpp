#include "headroom/oom/judgement.h"

namespace headroom::oom {

const char* to_string(Verdict verdict) {
  constexpr const char* kNames[] = {"gpu_oom", "host_oom", "not_oom", "unknown"};
  return kNames[static_cast<int>(verdict)];
}

bool is_out_of_memory(const Judgement& judgement) {
  const bool is_memory =
      judgement.verdict == Verdict::gpu_oom || judgement.verdict == Verdict::host_oom;
  return is_memory && judgement.confidence >= kSure;
}

}  // namespace headroom::oom
