// Exact gradient accumulation: the gradients of a batch's parts add up to those of the whole batch,
// also if the parts are of unequal size.
//
//   for (const Rows& part : parts_of({.count = 32}, 5)) {            // 5, 5, 5, 5, 5, 5, 2 rows
//     const Batch rows = models::rows_of(batch, part.first, part.count);
//     share_of_batch(mean_loss(rows), part.count, 32).backward();
//   }
//   optimizer->step();
//
// Steps are the parts of an epoch in the same way, so the last of 1,000 rows in steps of 32 has 8.
//
// Where a loss is a mean over labels, parts have unequal numbers of them (texts of unequal
// lengths). So each part's loss is multiplied by its share of all counted labels. Dividing by the
// number of parts instead would give the labels of a part with few of them more weight:
//
//   Tensor all = models::counted_labels(*model, batch);
//   ...
//     share_of_batch(model->run(rows).loss, models::counted_labels(*model, rows), all).backward();
//
// transformers' Trainer divides each sum by the same number for all parts (num_items_in_batch).
// Its result differs by a constant factor, because that number also counts the first label of each
// row, which no position predicts. share_of_batch does not wait for the device.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace headroom::optim {

struct Rows {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

// `whole` in parts of `at_once` rows; the last part has the remaining rows. Throws UsageError
// unless `at_once` is at least 1.
[[nodiscard]] std::vector<Rows> parts_of(const Rows& whole, std::int64_t at_once);

// The weighted loss of a part with `counted` of the batch's `in_all` rows, or any other unit. A
// part without any contributes zero, because its mean is NaN. Throws UsageError.
[[nodiscard]] at::Tensor share_of_batch(const at::Tensor& mean_loss, std::int64_t counted,
                                        std::int64_t in_all);
// The same with numbers that are on the device, which are not checked.
[[nodiscard]] at::Tensor share_of_batch(const at::Tensor& mean_loss, const at::Tensor& counted,
                                        const at::Tensor& in_all);

}  // namespace headroom::optim
