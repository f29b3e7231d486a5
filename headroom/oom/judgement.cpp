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

}  // namespace headroom::oom
