#include "headroom/sim/rules/families.h"
#include "headroom/sim/rules/layout.h"

namespace headroom::sim::rules {

void add_pointwise(Table& table) {
  table.rule("relu", [](const Tensor& x) { return elementwise({x}); });
  table.rule("where.self", [](const Tensor& condition, const Tensor& a, const Tensor& b) {
    return elementwise({condition, a, b}, at::result_type(a, b));
  });
}

}  // namespace headroom::sim::rules
