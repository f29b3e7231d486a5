// Operators that have half-precision kernels on CUDA, but only float and double ones on the CPU.
// Source: aten/src/ATen/native/cuda/AveragePool3d.cu, MultiMarginLoss.cu,
// MultiLabelMarginCriterion.cu and UpSampleBilinear2d.cu: AT_DISPATCH_FLOATING_TYPES_AND2(Half,
// BFloat16).
#include "headroom/sim/rules/families.h"

namespace headroom::sim::rules {

void add_half_precision(Table& table) {
  for (const char* name : {
           "avg_pool3d",
           "avg_pool3d.out",
           "avg_pool3d_backward",
           "avg_pool3d_backward.grad_input",
           "multi_margin_loss",
           "multi_margin_loss.out",
           "multi_margin_loss_backward",
           "multi_margin_loss_backward.grad_input",
           "multilabel_margin_loss_forward",
           "multilabel_margin_loss_forward.output",
           "multilabel_margin_loss_backward",
           "multilabel_margin_loss_backward.grad_input",
           "_upsample_bilinear2d_aa",
           "_upsample_bilinear2d_aa.out",
           "_upsample_bilinear2d_aa_backward",
           "_upsample_bilinear2d_aa_backward.grad_input",
           "_upsample_bicubic2d_aa",
           "_upsample_bicubic2d_aa.out",
           "_upsample_bicubic2d_aa_backward",
           "_upsample_bicubic2d_aa_backward.grad_input",
       })
    table.widens_half(name);
}

}  // namespace headroom::sim::rules
