// The values of keys, in one form: whatever a person types for a key becomes the text that
// `to_yaml` writes and that reads back as the same value.
//
//   checked(key, "Yes") == "true";  checked(key, "70 %") == "0.7"
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/base/amount.h"
#include "headroom/base/json.h"
#include "headroom/config/schema.h"

namespace headroom::config::detail {

// `given` is a text, null, a list of texts, or a list of maps of texts. std::nullopt: the key is to
// have no value. Throws UsageError that says what the key expects, with an example.
[[nodiscard]] std::optional<std::string> checked(const Key& key, const Json& given);

// The meaning of a text that `checked` has returned.
[[nodiscard]] ShareOrBytes share_or_bytes(std::string_view text);
[[nodiscard]] std::vector<std::string> words(std::string_view text);
[[nodiscard]] Json json_of(const Key& key, const std::string& text);

}  // namespace headroom::config::detail
