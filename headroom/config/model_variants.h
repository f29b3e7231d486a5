// Models by the memory of the smallest card, largest first:
//
//   model_variants: [{min_total: 40GiB, model: vit-large, batch_size: 16}, {model: vit-base}]
//
// The variant with the highest `min_total` that the smallest card reaches is taken
// (forecast/policies.h chooses). Here is only what the list says.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "headroom/base/bytes.h"
#include "headroom/base/json.h"

namespace headroom::config {

struct ModelVariant {
  std::string model;                            // in place of model.config
  Bytes min_total{};                            // of the smallest card's memory; 0: any card
  std::optional<std::int64_t> batch_size = {};  // in place of batch_size; nothing: that one

  bool operator==(const ModelVariant&) const = default;
};

// From a list of maps whose values are texts. Throws UsageError for a variant without a model, an
// unknown key, a wrong value, and two variants with the same `min_total`.
[[nodiscard]] std::vector<ModelVariant> model_variants_from(const Json& list);

}  // namespace headroom::config
