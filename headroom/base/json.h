// JSON whose keys keep the order they were written in, so that documents match the order that
// CLI.md lists. This header is cheap to include; .cpp files that build documents include
// <nlohmann/json.hpp>.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "headroom/base/bytes.h"

namespace headroom {

using Json = nlohmann::ordered_json;

// Throws InputError naming `source` and the offset of the first wrong byte.
[[nodiscard]] Json parse_json(std::string_view text, std::string_view source);

// One line without a line break at its end. Invalid UTF-8 (command lines may hold any bytes)
// becomes U+FFFD.
[[nodiscard]] std::string to_line(const Json& document);

// A size, stored in documents as a count of bytes.
[[nodiscard]] Bytes bytes_from(const Json& count);

// An optional value of a document: null if it is missing, and a size as its count of bytes.
template <typename Value, typename Document = Json>
[[nodiscard]] Document or_null(const std::optional<Value>& value) {
  if (!value) return {};
  if constexpr (std::is_same_v<Value, Bytes>)
    return value->count;
  else
    return *value;
}

}  // namespace headroom
