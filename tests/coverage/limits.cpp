// Expectations that do not hold for some cases, with the reason. A row without a case fails.
#include "limits.h"

#include <torch/headeronly/version.h>

#include <stdexcept>
#include <string_view>

namespace headroom::coverage {
namespace {

constexpr std::string_view kAll = "*";

struct Row {
  std::string_view covers;
  std::string_view variant;  // kAll: of every one
  Limits limits;
};

const std::vector<Row>& rows() {
  static const std::vector<Row> table = {
      // CUDA: aten/src/ATen/native/cuda/LossCTC.cu, AT_DISPATCH_FLOATING_TYPES
      {"CTCLoss", kAll, {.fp32_only = "knows float and double only"}},
      {"F::ctc_loss", kAll, {.fp32_only = "knows float and double only"}},
      // CUDA: aten/src/ATen/native/cuda/DistanceKernel.cu, AT_DISPATCH_FLOATING_TYPES
      {"F::pdist", kAll, {.fp32_only = "knows float and double only"}},
      // torch/nn/functional/activation.h, AT_DISPATCH_FLOATING_TYPES around masked_fill
      {"MultiheadAttention",
       "masked",
       {.fp32_only = "masks of padding: LibTorch's header knows float and double only"}},
      {"autocast", kAll, {.fp32_only = "is for parameters in fp32"}},

      // CUDA has these: AveragePool3d.cu, MultiMarginLoss.cu, MultiLabelMarginCriterion.cu,
      // UpSampleBilinear2d.cu, all AT_DISPATCH_FLOATING_TYPES_AND2(Half, BFloat16)
      {"AvgPool3d", kAll, {.no_bf16_cpu = "average pooling in three dimensions"}},
      {"LPPool3d", kAll, {.no_bf16_cpu = "average pooling in three dimensions"}},
      {"F::avg_pool3d", kAll, {.no_bf16_cpu = "average pooling in three dimensions"}},
      {"F::lp_pool3d", kAll, {.no_bf16_cpu = "average pooling in three dimensions"}},
      {"LocalResponseNorm", "", {.no_bf16_cpu = "average pooling in three dimensions"}},
      {"F::local_response_norm", "", {.no_bf16_cpu = "average pooling in three dimensions"}},
      {"MultiMarginLoss", kAll, {.no_bf16_cpu = "margins of classes"}},
      {"F::multi_margin_loss", kAll, {.no_bf16_cpu = "margins of classes"}},
      {"MultiLabelMarginLoss", kAll, {.no_bf16_cpu = "margins of classes"}},
      {"F::multilabel_margin_loss", kAll, {.no_bf16_cpu = "margins of classes"}},
      {"F::interpolate", "antialiased", {.no_bf16_cpu = "interpolation without aliases"}},
      {"F::interpolate", "antialiased bicubic", {.no_bf16_cpu = "interpolation without aliases"}},

      {"optim::LBFGS", kAll, {.reads_values = "stops when the gradient is small enough"}},
      {"F::one_hot",
       "of as many classes as there are",
       {.refused = "asks for the largest class; say how many there are"}},

      {"AdaptiveLogSoftmaxWithLoss",
       "",
       {.refused =
            "sorts the rows by cluster, so that each cluster's share depends on the targets"}},
      {"CrossEntropyLoss",
       "weighted and smoothed",
       {.refused = "leaves out the rows of the class that is ignored"}},
      {"CrossEntropyLoss",
       "weighted, smoothed and ignoring a class",
       {.refused = "leaves out the rows of the class that is ignored"}},
      {"optim::Adagrad",
       "of sparse gradients",
       {.refused = "adds up the rows of an index that occurs twice"}},

      {"autocast",
       "of norms to bf16",
       {.fp32_only = "is for parameters in fp32",
        .not_exact = "CUDA's autocast runs norms and softmax in fp32, the CPU's does not"}},
      {"autocast",
       "of norms to fp16",
       {.fp32_only = "is for parameters in fp32",
        .not_exact = "CUDA's autocast runs norms and softmax in fp32, the CPU's does not"}},
      {"at::scaled_dot_product_attention",
       "with shared keys",
       {.not_exact = "in fp32 CUDA has only the plain kernel for it, the CPU a fused one"}},
  };
  return table;
}

}  // namespace

void add_limits(Cases& cases) {
  for (const Row& row : rows()) {
    bool used = false;
    for (Case& one : cases) {
      if (one.covers != row.covers || (row.variant != kAll && one.variant != row.variant)) continue;
      one.limits = row.limits;
      used = true;
    }
    if (!used)
      throw std::logic_error("limits of a case that is not there: " + std::string(row.covers) +
                             ", " + std::string(row.variant));
  }
}

// CUDA's kernels of padding and of group norm give rows whatever they get; the CPU's know both
// layouts. What follows then adds in another order.
// Source: aten/src/ATen/native/cuda/ReflectionPad.cu, ReplicationPadding.cu, group_norm_kernel.cu
std::string not_exact_channels_last(const Case& one) {
  if (one.covers == "Conv2d" && (one.variant == "reflecting" || one.variant == "replicating"))
    return "CUDA pads into rows, the CPU keeps the channels last";
  if (one.covers == "GroupNorm" && (one.variant.empty() || one.variant == "without weights"))
    return "CUDA normalises rows, the CPU has a kernel for channels last";
  return {};
}

// 2.15 has no kernel of group norm for channels last any more, or one that rounds alike.
bool became_exact_channels_last(const Case& one) {
  return TORCH_VERSION_MINOR >= 15 && one.covers == "GroupNorm";
}

// 200 equal calls of torch._fused_sgd_ on 8 x 4 bf16 numbers with momentum gave 8 different answers
// on the CPU with LibTorch 2.11; without momentum, one.
std::string unsteady_in_bf16(const Case& one) {
  return one.covers == "at::_fused_sgd_" ? "reads memory that was never written, with momentum"
                                         : "";
}

}  // namespace headroom::coverage
