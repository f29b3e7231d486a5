// JSON, with keys kept in the order they were written, so that documents read the way CLI.md's
// contract lists them. Including this costs little; <nlohmann/json.hpp> is for the .cpp files that
// build documents.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "headroom/base/bytes.h"

namespace headroom {

using Json = nlohmann::ordered_json;

// Throws InputError naming `source` and the offset of the first wrong byte.
[[nodiscard]] Json parse_json(std::string_view text, std::string_view source);

// One line, without a line break at its end. Bytes that are no UTF-8 (command lines may hold any)
// become U+FFFD instead of an error.
[[nodiscard]] std::string to_line(const Json& document);

// A size, which documents hold as a count of bytes.
[[nodiscard]] Bytes bytes_from(const Json& count);

}  // namespace headroom
