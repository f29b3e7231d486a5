// The text of --help-keys: each key with its default and effect, under headings.
#pragma once

#include <string>

namespace headroom::config {

class Schema;

// Lines of at most `width` cells.
[[nodiscard]] std::string help_of(const Schema& schema, int width = 100);

}  // namespace headroom::config
