// Exact gradient accumulation: the gradients of a batch's parts add up to those of the whole batch.
//
// A loss is a mean over its counted labels, and parts have unequal numbers of them (texts of
// unequal lengths). So each part's loss is multiplied by its share of all counted labels. Dividing
// by the number of parts instead would give the labels of a part with few of them more weight:
//
//   Tensor all = at::zeros({}, at::kLong);
//   for (const Batch& part : parts) all += models::counted_labels(*model, part);
//   for (const Batch& part : parts)
//     share_of_batch(model->run(part).loss, models::counted_labels(*model, part), all).backward();
//   optimizer->step();
//
// transformers' Trainer divides each sum by the same number for all parts (num_items_in_batch).
// Its result differs by a constant factor, because that number also counts the first label of each
// row, which no position predicts. share_of_batch does not wait for the device.
#pragma once

#include <ATen/core/Tensor.h>

namespace headroom::optim {

// The weighted loss of a part with `counted` of the batch's `in_all` counted labels. A part without
// any contributes zero, because its mean is NaN.
[[nodiscard]] at::Tensor share_of_batch(const at::Tensor& mean_loss, const at::Tensor& counted,
                                        const at::Tensor& in_all);

}  // namespace headroom::optim
