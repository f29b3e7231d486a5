// Figures of a forecast's modules as figures of each layer that a split of the model counts
// (models/model.h): what comes before the layers is with the first, and a head with the last.
//
//   const auto resident = by_layer<Bytes>(forecast, [](const ModuleWork& module) {
//     return Bytes{module.resident.count / std::max<std::int64_t>(1, module.layers)};
//   });
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "headroom/forecast/closed_form.h"

namespace headroom::forecast {

// `of_one(module)`: of one of the module's layers, or of the module if it has none.
template <typename Value, typename OfOne>
[[nodiscard]] std::vector<Value> by_layer(const Forecast& forecast, const OfOne& of_one) {
  std::vector<Value> layers;
  Value before{};
  for (const ModuleWork& module : forecast.work) {
    const Value each = of_one(module);
    if (module.layers == 0) before += each;
    for (std::int64_t layer = 0; layer < module.layers; ++layer) {
      layers.push_back(each);
      layers.back() += std::exchange(before, Value{});
    }
  }
  if (!layers.empty()) layers.back() += before;
  return layers;
}

}  // namespace headroom::forecast
