#include "headroom/sim/rules/families.h"
#include "headroom/sim/rules/layout.h"

namespace headroom::sim::rules {

void add_embedding(Table& table) {
  table.rule("embedding_dense_backward",
             [](const Tensor& gradient, const Tensor&, std::int64_t rows, std::int64_t, bool) {
               return at::empty({rows, gradient.size(-1)}, gradient.options());
             });
}

}  // namespace headroom::sim::rules
