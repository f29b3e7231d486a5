// Batches of the right shapes for a model, to run it without data or with random numbers.
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
  std::int64_t length = 512;                       // tokens per row
  std::optional<std::int64_t> target_length = {};  // target tokens per row; std::nullopt: `length`
  // Pixels per side; std::nullopt: the config's value, else 224.
  std::optional<std::int64_t> image = {};
  model::Mask mask = model::Mask::ones;
  at::ScalarType pixels = at::kFloat;
  bool labels = true;  // if false, an encoder-decoder gets target tokens instead
};

// Uninitialized. Throws UsageError for sizes that the model cannot take.
[[nodiscard]] Batch empty_batch(const Model& model, const BatchSizes& sizes, c10::Device device);
// Random tokens, labels and pixels, from the CPU's generator; a mask, if any, is ones.
[[nodiscard]] Batch random_batch(const Model& model, const BatchSizes& sizes, c10::Device device);

// Some rows of a batch, which share its memory.
[[nodiscard]] Batch rows_of(const Batch& batch, std::int64_t first, std::int64_t count);

// The number of labels that the loss averages over, as a tensor on the labels' device.
[[nodiscard]] at::Tensor counted_labels(const Model& model, const Batch& batch);

}  // namespace headroom::models
