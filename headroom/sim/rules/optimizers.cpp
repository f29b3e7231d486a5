#include "headroom/sim/rules/families.h"
#include "headroom/sim/rules/layout.h"

namespace headroom::sim::rules {

void add_optimizers(Table& table) {
  // They write in place and need nothing besides.
  const auto adam = [](TensorList, TensorList, TensorList, TensorList, TensorList, TensorList,
                       double, double, double, double, double, bool, bool,
                       const std::optional<Tensor>&, const std::optional<Tensor>&) {};
  table.rule("_fused_adam_", adam);
  table.rule("_fused_adamw_", adam);
}

}  // namespace headroom::sim::rules
