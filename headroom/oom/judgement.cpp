#include "headroom/oom/judgement.h"

namespace headroom::oom {

const char* to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::gpu_oom:
      return "gpu_oom";
    case Verdict::host_oom:
      return "host_oom";
    case Verdict::not_oom:
      return "not_oom";
    case Verdict::unknown:
      break;
  }
  return "unknown";
}

bool is_out_of_memory(const Judgement& judgement) {
  const bool is_memory =
      judgement.verdict == Verdict::gpu_oom || judgement.verdict == Verdict::host_oom;
  return is_memory && judgement.confidence >= kSure;
}

}  // namespace headroom::oom
