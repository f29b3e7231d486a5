// The configurations that Headroom brings along: `--config-name robust`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace headroom::config {

[[nodiscard]] const std::vector<std::string>& preset_names();

// Its text in YAML. Throws UsageError for an unknown name, with the nearest known one.
[[nodiscard]] std::string_view preset(std::string_view name);

}  // namespace headroom::config
