// Batches of the right shapes for a model, to run it without data or with numbers that mean
// nothing.
//
//   const Batch batch = empty_batch(*model, {.rows = 4, .length = 1024}, device);
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>

#include "headroom/models/model.h"

namespace headroom::models {

struct BatchSizes {
  std::int64_t rows = 1;
  std::int64_t length = 512;                       // tokens of a row
  std::optional<std::int64_t> target_length = {};  // of a decoder's; nothing: as `length`
  std::optional<std::int64_t> image = {};          // pixels a side; nothing: the config's, or 224
  formula::Mask mask = formula::Mask::ones;
  at::ScalarType pixels = at::kFloat;
  bool labels = true;  // without, a decoder beside an encoder gets its tokens themselves
};

// Not initialised. Throws UsageError for sizes that the model cannot take.
[[nodiscard]] Batch empty_batch(const Model& model, const BatchSizes& sizes, c10::Device device);
// Random tokens, labels and pixels, from the CPU's generator; a mask of ones.
[[nodiscard]] Batch random_batch(const Model& model, const BatchSizes& sizes, c10::Device device);

// How many labels go into the loss: its mean is over so many. A number on the labels' device.
[[nodiscard]] at::Tensor counted_labels(const Model& model, const Batch& batch);

}  // namespace headroom::models
