// What GradScaler asks of a card. Both work in place, and need nothing on the way.
// Source: aten/src/ATen/native/cuda/AmpKernels.cu.
#include "headroom/sim/rules/families.h"
#include "headroom/sim/rules/layout.h"

namespace headroom::sim::rules {

void add_gradient_scaler(Table& table) {
  table.rule("_amp_foreach_non_finite_check_and_unscale_",
             [](TensorList, Tensor& found, const Tensor& scale) {
               TORCH_CHECK(scale.numel() == 1, "inv_scale must be a 1-element tensor.");
               TORCH_CHECK(found.numel() == 1, "found_inf must be a 1-element tensor.");
             });
  table.rule("_amp_update_scale_",
             [](Tensor& scale, Tensor&, const Tensor&, double, double, std::int64_t) -> Tensor& {
               return scale;
             });
}

}  // namespace headroom::sim::rules
