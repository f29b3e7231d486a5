// A batch in parts, exactly: the gradients of all parts together are those of the whole.
//
// A loss is a mean over the labels that count, and parts have unequal numbers of them (texts of
// unequal lengths). So each part's loss is multiplied by its share of all labels, not by one over
// the number of parts, which gives the labels of a part with few of them more weight:
//
//   Tensor all = at::zeros({}, at::kLong);
//   for (const Batch& part : parts) all += models::counted_labels(*model, part);
//   for (const Batch& part : parts)
//     share_of_batch(model->run(part).loss, models::counted_labels(*model, part), all).backward();
//   optimizer->step();
//
// transformers' Trainer divides a sum by the same number for all parts (num_items_in_batch), which
// is this but for a constant: it counts labels that no position predicts, the first of each row.
// Nothing waits for the device.
#pragma once

#include <ATen/core/Tensor.h>

namespace headroom::optim {

// Of a part in which `counted` labels count, of `in_all`. A part without any adds nothing: its mean
// is no number.
[[nodiscard]] at::Tensor share_of_batch(const at::Tensor& mean_loss, const at::Tensor& counted,
                                        const at::Tensor& in_all);

}  // namespace headroom::optim
