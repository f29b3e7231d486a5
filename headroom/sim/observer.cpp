#include "headroom/sim/observer.h"

#include "headroom/sim/detail/executing.h"

namespace headroom::sim {

std::string_view current_operator() noexcept {
  return detail::executing.name;
}

}  // namespace headroom::sim
