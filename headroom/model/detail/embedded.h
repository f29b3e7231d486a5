// The data files of this room, compiled into the program (cmake/EmbedFile.cmake).
#pragma once

#include <string_view>

namespace headroom::model::embedded {

[[nodiscard]] std::string_view model_types_json();
[[nodiscard]] std::string_view models_json();

}  // namespace headroom::model::embedded
