// The data files of this room, compiled into the program (cmake/EmbedFile.cmake).
#pragma once

#include <string_view>

namespace headroom::oom::embedded {

[[nodiscard]] std::string_view rules_json();

}  // namespace headroom::oom::embedded
