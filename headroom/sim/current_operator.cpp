#include "headroom/sim/current_operator.h"

#include "headroom/sim/device/running_operator.h"

namespace headroom::sim {

std::string_view current_operator() noexcept {
  return detail::running.name;
}

}  // namespace headroom::sim
