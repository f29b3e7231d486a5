#include "headroom/libtorch/autocast.h"

#include <ATen/autocast_mode.h>

namespace headroom::libtorch {

AutocastScope::AutocastScope(c10::DeviceType device, c10::ScalarType type, bool enabled)
    : device_(device),
      type_before_(at::autocast::get_autocast_dtype(device)),
      enabled_before_(at::autocast::is_autocast_enabled(device)) {
  at::autocast::set_autocast_enabled(device, enabled);
  at::autocast::set_autocast_dtype(device, type);
  at::autocast::increment_nesting();
}

AutocastScope::~AutocastScope() {
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_dtype(device_, type_before_);
  at::autocast::set_autocast_enabled(device_, enabled_before_);
}

bool autocasts(c10::DeviceType device) {
  return at::autocast::is_autocast_available(device) && at::autocast::is_autocast_enabled(device);
}

}  // namespace headroom::libtorch
