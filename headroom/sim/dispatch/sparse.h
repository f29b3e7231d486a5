// Sparse gradients on `sim`, as an embedding with sparse = true makes them: tensors of indices and
// values on the card. A training step's operators work: accumulating, adding to a dense tensor as
// torch::optim::SGD does, reading indices and values, making them dense. Every other operator
// refuses sparse tensors, and nested ones that are not jagged.
#pragma once

namespace headroom::sim::detail {

void register_sparse();

}  // namespace headroom::sim::detail
