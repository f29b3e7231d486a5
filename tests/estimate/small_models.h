// The models of the catalogue, cut down until a step takes milliseconds: the same config.json with
// smaller sizes, so the same layers, kinds of heads, masks and tied weights.
#pragma once

#include <string>
#include <vector>

#include "headroom/base/json.h"
#include "headroom/model/model_catalogue.h"

namespace headroom::estimate {

// `more` are keys of its config.json besides.
[[nodiscard]] model::NamedModel small(const std::string& name, const Json& more);
[[nodiscard]] model::NamedModel small(const std::string& name);

// One name for each model type.
[[nodiscard]] std::vector<std::string> one_of_each_type();

// Tokens of a row, or pixels a side, that a small model takes.
inline constexpr int kSmallLength = 16;
inline constexpr int kSmallImage = 32;

}  // namespace headroom::estimate
