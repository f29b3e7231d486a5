// How much of a card a plan may use: what is usable, less the context that the process itself will
// take and the margin of every plan.
#pragma once

#include "headroom/formula/policies.h"
#include "headroom/gpu/profile.h"

namespace headroom::cli {

[[nodiscard]] inline Bytes room_for_plan(Bytes usable, const gpu::DeviceProfile* profile) {
  const Bytes context = profile != nullptr ? profile->context.value_or(Bytes{0}) : Bytes{0};
  return formula::plannable(usable - context);
}

}  // namespace headroom::cli
