// Step time on a card, by a roofline over the closed form's tape. A matrix product takes its
// operations at the card's rate for its number type, or its bytes at the card's bandwidth,
// whichever is longer; other kernels take their bytes at that bandwidth. The optimizer's reads and
// writes and the traffic over PCIe and between cards are added, as if nothing overlapped.
//
//   const double seconds = step_seconds(forecast_of(config, settings), gpu::find_card("RTX 4090"));
//
// Its purpose is to compare settings. tests/forecast/step_time_test.cpp checks it against published
// throughputs. A kernel takes some microseconds at least, as kernels of equal intensity do in the
// mean.
#pragma once

#include <vector>

#include "headroom/forecast/closed_form.h"
#include "headroom/gpu/catalogue.h"

namespace headroom::forecast {

// The card itself, or an A100 80GB for null.
[[nodiscard]] const gpu::CatalogueCard& card_or_a100(const gpu::CatalogueCard* card);

// Seconds for this work alone. Null `card`: an A100 80GB.
[[nodiscard]] double effort_seconds(const Effort& effort, const gpu::CatalogueCard* card);

// Seconds of one layer: of its passes for one micro-batch, and of its update in a step.
struct LayerSeconds {
  double forward = 0, backward = 0, optimizer = 0;

  LayerSeconds& operator+=(const LayerSeconds& more) {
    forward += more.forward;
    backward += more.backward;
    optimizer += more.optimizer;
    return *this;
  }
};
// Of each layer that a split of the model counts (by_layer.h). Null `card`: an A100 80GB.
[[nodiscard]] std::vector<LayerSeconds> layer_seconds(const Forecast& forecast,
                                                      const gpu::CatalogueCard* card);

// Seconds for the whole batch, accumulation included. Null `card`: an A100 80GB.
[[nodiscard]] double step_seconds(const Forecast& forecast, const gpu::CatalogueCard* card);

}  // namespace headroom::forecast
