// Models by the memory of the smallest card, largest first:
//
//   model_variants: [{min_total: 40GiB, model: vit-large, batch_size: 16}, {model: vit-base}]
//
// The variant with the highest `min_total` that the smallest card reaches is taken (plan/policies.h
// chooses). This header only reads the list.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "headroom/base/bytes.h"
#include "headroom/base/json.h"

namespace headroom::config {

struct ModelVariant {
  std::string model;  // in place of model.config
  Bytes min_total{};  // of the smallest card's memory; 0: any card
  // In place of the key batch_size; std::nullopt: that key's value.
  std::optional<std::int64_t> batch_size = {};

  bool operator==(const ModelVariant&) const = default;
};

// From a list of maps whose values are texts. Throws UsageError for a variant without a model, an
// unknown key, a wrong value, and two variants with the same `min_total`.
[[nodiscard]] std::vector<ModelVariant> model_variants_from(const Json& list);

}  // namespace headroom::config
