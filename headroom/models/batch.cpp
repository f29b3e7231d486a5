#include "headroom/models/batch.h"

#include <ATen/ATen.h>

#include <string>
#include <vector>

#include "headroom/base/error.h"
#include "headroom/model/positions.h"

namespace headroom::models {
namespace {

using at::Tensor;
using model::ModelConfig;

std::int64_t at_least_1(std::int64_t value, const char* what) {
  if (value < 1)
    throw UsageError(
        expectation("batch", std::string("at least one ") + what, std::to_string(value), "1"));
  return value;
}

std::int64_t image_side(const ModelConfig& config, const BatchSizes& sizes) {
  if (sizes.image) return at_least_1(*sizes.image, "pixel a side");
  return config.has("image_size") ? config.at_least_1("image_size") : 224;
}

// Makes a batch with the shapes of the model's task. `whole` makes tensors of integers below a
// bound, `real` tensors of real numbers.
template <typename Whole, typename Real>
Batch batch_of(const Model& model, const BatchSizes& sizes, const Whole& whole, const Real& real) {
  const ModelConfig& config = model.config();
  const std::int64_t rows = at_least_1(sizes.rows, "row");
  Batch batch;
  if (model.task() == Task::image_classification) {
    const std::int64_t side = image_side(config, sizes);
    batch.pixels = real({rows, config.at_least_1("num_channels"), side, side});
    if (sizes.labels) batch.labels = whole({rows}, config.labels());
    return batch;
  }
  const std::int64_t length = at_least_1(sizes.length, "token"),
                     target = at_least_1(sizes.target_length.value_or(length), "target token"),
                     vocabulary = config.at_least_1("vocab_size");
  model::check_sequence(config, length);
  batch.tokens = whole({rows, length}, vocabulary);
  if (sizes.mask == model::Mask::ones) {
    batch.mask = at::ones({rows, length}, batch.tokens.options());
    batch.mask_is_all_ones = true;
  }
  if (!sizes.labels) {
    if (model.task() == Task::seq2seq_lm) batch.targets = whole({rows, target}, vocabulary);
    return batch;
  }
  if (model.task() == Task::sequence_classification)
    batch.labels = whole({rows}, config.labels());
  else
    batch.labels = whole({rows, model.task() == Task::seq2seq_lm ? target : length}, vocabulary);
  return batch;
}

using Sizes = std::vector<std::int64_t>;

}  // namespace

Batch empty_batch(const Model& model, const BatchSizes& sizes, c10::Device device) {
  const auto whole = [&](const Sizes& of, std::int64_t) {
    return at::empty(of, at::device(device).dtype(at::kLong));
  };
  const auto real = [&](const Sizes& of) {
    return at::empty(of, at::device(device).dtype(sizes.pixels));
  };
  return batch_of(model, sizes, whole, real);
}

Batch random_batch(const Model& model, const BatchSizes& sizes, c10::Device device) {
  const auto whole = [&](const Sizes& of, std::int64_t below) {
    return at::randint(below, of, at::dtype(at::kLong)).to(device);
  };
  const auto real = [&](const Sizes& of) { return at::randn(of).to(device, sizes.pixels); };
  return batch_of(model, sizes, whole, real);
}

Batch rows_of(const Batch& batch, std::int64_t first, std::int64_t count) {
  Batch rows = batch;
  for (Tensor* tensor : {&rows.tokens, &rows.mask, &rows.pixels, &rows.labels, &rows.targets})
    if (tensor->defined()) *tensor = tensor->narrow(0, first, count);
  return rows;
}

Tensor counted_labels(const Model& model, const Batch& batch) {
  const Tensor& labels = batch.labels;
  if (!at::isIntegralType(labels.scalar_type(), false))
    return at::full({}, labels.numel(), labels.options().dtype(at::kLong));
  const bool of_next = model.task() == Task::causal_lm;  // no position predicts a row's first token
  return ((of_next ? labels.slice(1, 1) : labels) != -100).sum();
}

}  // namespace headroom::models
