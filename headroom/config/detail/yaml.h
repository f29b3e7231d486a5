// Reads YAML into keys with their values. Maps of sections open up:
//
//   training:
//     batch_size: 32      ->  "training.batch_size", "32", "my.yaml:2"
//     model: {lora_r: 4}  ->  "training.model.lora_r", "4", "my.yaml:3"
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "headroom/base/json.h"
#include "headroom/config/schema.h"

namespace headroom::config::detail {

// The value is a text, null, a list of texts, or a list of maps of texts.
using OnSetting =
    std::function<void(const std::string& key, const Json& value, const std::string& place)>;

// Calls `on_setting` for each, in the order of the file. Throws InputError with `source` and the
// line for text that is no YAML, several documents, maps where the schema has no section, and where
// `on_setting` throws UsageError.
void read_yaml(const Schema& schema, std::string_view text, const std::string& source,
               const OnSetting& on_setting);

// A value in YAML's notation: "[q, v]". Throws UsageError for text that is not.
[[nodiscard]] Json read_value(std::string_view text);

}  // namespace headroom::config::detail
