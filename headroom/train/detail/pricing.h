// Prices a step's plans by dry runs in a child process (sim/child.h), where the module gets tensors
// without values. This process and its card are not touched.
#pragma once

#include "headroom/train/detail/transactions.h"
#include "headroom/train/prices.h"

namespace headroom::train::detail {

// For the rows of a replica. Throws UnavailableError if there can be no child, and rethrows the
// exception of a dry run of the plain form. A technique whose dry run fails is left out.
[[nodiscard]] Prices priced(const Transactions& ranks, const Tensors& batch, const Plan& plan,
                            const LadderOptions& options);

}  // namespace headroom::train::detail
