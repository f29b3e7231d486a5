#include "headroom/train/detail/batch_rows.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <optional>
#include <string>

#include "headroom/base/error.h"

namespace headroom::train::detail {

using at::Tensor;

std::int64_t rows_in(const Tensors& batch) {
  std::optional<std::int64_t> rows;
  for (const Tensor& one : batch) {
    if (!one.defined()) continue;
    if (one.dim() == 0 || (rows && one.size(0) != *rows))
      throw UsageError(expectation("Step::run", "tensors with the same number of rows",
                                   one.dim() == 0 ? "a number"
                                                  : std::to_string(*rows) + " and " +
                                                        std::to_string(one.size(0)) + " rows"));
    rows = one.size(0);
  }
  if (!rows || *rows == 0)
    throw UsageError(expectation("Step::run", "a batch with rows", "one without"));
  return *rows;
}

Tensors some_rows(const Tensors& batch, const optim::Rows& rows) {
  Tensors some;
  for (const Tensor& one : batch)
    some.push_back(one.defined() ? one.narrow(0, rows.first, rows.count) : one);
  return some;
}

namespace {

// The rows of piece `i` of `count` nearly equal ones.
optim::Rows piece(std::int64_t rows, std::int64_t i, std::int64_t count) {
  const std::int64_t more = rows % count;
  return {i * (rows / count) + std::min(i, more), rows / count + (i < more ? 1 : 0)};
}

}  // namespace

optim::Rows rows_of_replica(std::int64_t rows, const parallel::Group& replicas) {
  return piece(rows, replicas.rank(), replicas.size());
}

std::vector<optim::Rows> parts_of(std::int64_t rows, const Plan& plan) {
  const std::int64_t count = count_of_parts(plan, rows);
  std::vector<optim::Rows> all;
  for (std::int64_t i = 0; i < count; ++i) all.push_back(piece(rows, i, count));
  return all;
}

Tensors used(const Objective& objective, const Tensors& rows) {
  if (objective.uses.empty()) return rows;
  Tensors used(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (objective.uses.at(i)) used[i] = rows[i];
  return used;
}

Tensors put_on(const Tensors& rows, c10::Device device) {
  Tensors there;
  for (const Tensor& one : rows) {
    const bool can_wait = one.defined() && one.device().is_cpu() && one.is_pinned();
    there.push_back(one.defined() ? one.to(device, /*non_blocking=*/can_wait) : one);
  }
  return there;
}

}  // namespace headroom::train::detail
