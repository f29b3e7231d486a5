// The data files of this room, compiled into the program (cmake/EmbedFile.cmake).
#pragma once

#include <string_view>

namespace headroom::gpu::embedded {

[[nodiscard]] std::string_view cards_json();
[[nodiscard]] std::string_view profiles_json();

}  // namespace headroom::gpu::embedded
