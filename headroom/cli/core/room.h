// Memory of a card that a plan may use: the usable memory minus the CUDA context of the process
// itself and the margin of every plan.
#pragma once

#include "headroom/gpu/profile.h"
#include "headroom/plan/policies.h"

namespace headroom::cli {

[[nodiscard]] inline Bytes room_for_plan(Bytes usable, const gpu::DeviceProfile* profile) {
  const Bytes context = profile != nullptr ? profile->context.value_or(Bytes{0}) : Bytes{0};
  return plan::plannable(usable - context);
}

}  // namespace headroom::cli
