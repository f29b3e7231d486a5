#include "headroom/config/presets.h"

#include "headroom/base/error.h"
#include "headroom/base/text.h"
#include "headroom/config/detail/embedded.h"

namespace headroom::config {

const std::vector<std::string>& preset_names() {
  static const std::vector<std::string> all{"default", "robust"};
  return all;
}

std::string_view preset(std::string_view name) {
  if (name == "default") return embedded::default_yaml();
  if (name == "robust") return embedded::robust_yaml();
  throw UsageError(expectation("preset", "one of " + join(preset_names(), ", "), name,
                               nearest(name, preset_names()).value_or(preset_names().back())));
}

}  // namespace headroom::config
