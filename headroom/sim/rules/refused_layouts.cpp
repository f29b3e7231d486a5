// Operators of sparse and nested tensors: refused, with advice on what to use.
#include "headroom/sim/rules/families.h"
#include "headroom/sim/rules/results.h"

namespace headroom::sim::rules {

void add_refused_layouts(Table& table) {
  for (const char* name :
       {"_to_sparse", "_to_sparse.sparse_dim", "_to_sparse_bsc", "_to_sparse_bsr", "_to_sparse_csc",
        "_to_sparse_csr", "_to_sparse_semi_structured", "_validate_compressed_sparse_indices",
        "_sparse_semi_structured_addmm", "_sparse_semi_structured_apply",
        "_sparse_semi_structured_apply_dense", "_sparse_semi_structured_linear",
        "_sparse_semi_structured_mm", "_sparse_semi_structured_tile", "_cslt_compress",
        "_cslt_sparse_mm", "_cslt_sparse_mm_search", "sspaddmm.out"})
    table.refuse(name,
                 "sparse tensors are not simulated; use dense ones, with a mask where the "
                 "zeros matter (of embeddings: without sparse gradients)");
  for (const char* name : {"_nested_compute_contiguous_strides_offsets", "_nested_from_padded",
                           "_nested_tensor_from_mask", "_nested_tensor_from_mask_left_aligned",
                           "_nested_view_from_buffer"})
    table.refuse(name, "nested tensors are not simulated; use padded ones with a mask");
}

}  // namespace headroom::sim::rules
