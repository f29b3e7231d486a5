// The rows of a batch: how replicas divide them, in which parts a plan runs them, and what of them
// a rank puts on its device.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <vector>

#include "headroom/optim/accumulation.h"
#include "headroom/parallel/group.h"
#include "headroom/train/objective.h"
#include "headroom/train/plan.h"

namespace headroom::train::detail {

// Throws UsageError for tensors that are not a batch.
[[nodiscard]] std::int64_t rows_in(const Tensors& batch);
[[nodiscard]] Tensors some_rows(const Tensors& batch, const optim::Rows& rows);
// The rows of a replica: nearly equal numbers, the first ones have more.
[[nodiscard]] optim::Rows rows_of_replica(std::int64_t rows, const parallel::Group& replicas);
// The parts in which a plan runs a batch.
[[nodiscard]] std::vector<optim::Rows> parts_of(std::int64_t rows, const Plan& plan);
// The tensors that the objective's part uses.
[[nodiscard]] Tensors used(const Objective& objective, const Tensors& rows);
[[nodiscard]] Tensors put_on(const Tensors& rows, c10::Device device);

}  // namespace headroom::train::detail
