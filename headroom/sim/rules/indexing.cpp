#include "headroom/sim/rules/families.h"
#include "headroom/sim/rules/layout.h"

namespace headroom::sim::rules {

void add_indexing(Table& table) {
  table.rule("index_select", [](const Tensor& x, std::int64_t dim, const Tensor& index) {
    auto sizes = x.sizes().vec();
    if (!sizes.empty()) sizes[static_cast<std::size_t>(at::maybe_wrap_dim(dim, x.dim()))] = index.numel();
    return at::empty(sizes, x.options());
  });
}

}  // namespace headroom::sim::rules
