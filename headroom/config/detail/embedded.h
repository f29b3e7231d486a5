// The presets, compiled into the program (cmake/EmbedFile.cmake).
#pragma once

#include <string_view>

namespace headroom::config::embedded {

[[nodiscard]] std::string_view default_yaml();
[[nodiscard]] std::string_view robust_yaml();

}  // namespace headroom::config::embedded
