// How long a step takes on a card, by a roofline over the closed form's tape: a product of matrices
// takes as long as its operations at the card's rate for its kind of numbers, or as its bytes at
// the card's bandwidth, whichever is more; all other kernels as their bytes; what the optimizer
// reads and writes, what goes over PCIe or between cards comes on top, as if nothing overlapped.
//
//   const double seconds = step_seconds(forecast_of(config, settings), gpu::find_card("RTX 4090"));
//
// It is there to compare settings with each other. tests/formula/step_time_test.cpp has it beside
// published throughputs. What it leaves out: the time to start kernels, which small steps are bound
// by.
#pragma once

#include "headroom/formula/closed_form.h"
#include "headroom/gpu/catalogue.h"

namespace headroom::formula {

// Of the whole batch, accumulation included. `card` null: an A100.
[[nodiscard]] double step_seconds(const Forecast& forecast, const gpu::CatalogueCard* card);

}  // namespace headroom::formula
