// The category that a tensor's life shows, in a trace that records phases: what is made in forward
// and freed in backward is an activation.
#pragma once

#include "headroom/page/timeline.h"

namespace headroom::page::detail {

[[nodiscard]] trace::Category category_by_life(const Timeline& timeline, const TensorLife& tensor);

}  // namespace headroom::page::detail
