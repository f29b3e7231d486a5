// Sparse gradients on `sim`, as an embedding with sparse = true makes them: tensors of indices and
// values that lie on the card. What a training step does with them works: accumulating, adding to a
// dense tensor as torch::optim::SGD does, reading indices and values, making them dense. Everything
// else says so, and so does everything of nested tensors that are not jagged.
#pragma once

namespace headroom::sim::detail {

void register_sparse();

}  // namespace headroom::sim::detail
