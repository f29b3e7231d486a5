// The files of the report page, and d3, compiled into the program (cmake/EmbedFile.cmake).
#pragma once

#include <string_view>

namespace headroom::page::embedded {

[[nodiscard]] std::string_view page_html();
[[nodiscard]] std::string_view page_css();
[[nodiscard]] std::string_view page_js();
[[nodiscard]] std::string_view d3_js();

}  // namespace headroom::page::embedded
