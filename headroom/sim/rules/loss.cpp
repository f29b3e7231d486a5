// Losses for which LibTorch has no shapes, or which need more than their result on CUDA.
#include "headroom/sim/rules/families.h"
#include "headroom/sim/rules/results.h"

namespace headroom::sim::rules {
namespace {

constexpr std::int64_t kNone = 0;  // at::Reduction::None

// A loss per element that is reduced to one number in place: its memory keeps its size.
Tensor reduced_in_place(Tensor loss, std::int64_t reduction) {
  if (reduction != kNone) loss.resize_({});
  return loss;
}

// The result is allocated as large as the input; with a reduction so is a loss per element.
// Source: aten/src/ATen/native/Loss.cpp, mse_loss_out and smooth_l1_loss_out.
Tensor mean_of_elements(const Tensor& x, const Tensor& target, std::int64_t reduction) {
  Tensor out = elementwise({x, target});
  const Tensor each = reduction != kNone && follows_cuda() ? like(out) : Tensor();
  return reduced_in_place(out, reduction);
}

Tensor huber(const Tensor& x, const Tensor&, std::int64_t reduction, double) {
  Tensor loss = like(x);
  return reduction == kNone ? loss : scalar(x);
}

// Source: aten/src/ATen/native/cuda/Loss.cu.
Tensor cross_entropy(const Tensor& x, const Tensor&, const Optional&, std::int64_t reduction) {
  Tensor loss = like(x);
  const Tensor one = reduction == kNone ? Tensor() : scalar(x);
  return reduced_in_place(loss, reduction);
}

void add_elementwise_losses(Table& table) {
  table.rule("mse_loss", mean_of_elements);
  table.rule("smooth_l1_loss",
             [](const Tensor& x, const Tensor& target, std::int64_t reduction, double beta) {
               TORCH_CHECK(beta >= 0, "smooth_l1_loss does not support negative values for beta.");
               return mean_of_elements(x, target, reduction);
             });
  table.contiguous_as(1, {"mse_loss_backward", "smooth_l1_loss_backward", "huber_loss_backward"});
  table.rule("huber_loss", huber);
  table.rule("binary_cross_entropy", cross_entropy);
  table.like(1, {"binary_cross_entropy_backward"});
}

// ---- Losses over classes ----

// Source: aten/src/ATen/native/cuda/NLLLoss2d.cu.
Two nll_2d(const Tensor& x, const Tensor& target, const Optional&, std::int64_t reduction,
           std::int64_t) {
  TORCH_CHECK(x.dim() == 4 && target.dim() == 3 && x.size(0) == target.size(0) &&
                  x.size(2) == target.size(1) && x.size(3) == target.size(2),
              "size mismatch (got input: ", x.sizes(), " , target: ", target.sizes(), ")");
  Tensor total_weight = scalar(x);
  Tensor out = reduction == kNone ? contiguous(target, x.scalar_type()) : scalar(x);
  const bool copies = reduction != kNone;
  const Tensor input = copies ? as_contiguous(x) : x;
  const Tensor classes = copies ? as_contiguous(target) : target;
  return {out, total_weight};
}

// Source: aten/src/ATen/native/cuda/MultiMarginLoss.cu.
Tensor multi_margin(const Tensor& x, const Tensor& target, const Scalar&, const Scalar&,
                    const Optional&, std::int64_t reduction) {
  const std::int64_t samples = x.dim() == 2 ? x.size(0) : 1;
  TORCH_CHECK(target.dim() <= 1 && target.numel() == samples, "inconsistent target size, expected ",
              samples, " but got ", target.sizes());
  if (x.dim() < 2) return scalar(x);
  if (reduction == kNone) return contiguous({samples}, x);
  Tensor out = scalar(x);
  const Tensor each = contiguous({samples}, x);
  return out;
}

// Source: aten/src/ATen/native/cuda/MultiLabelMarginCriterion.cu.
Two multilabel_margin(const Tensor& x, const Tensor& target, std::int64_t reduction) {
  TORCH_CHECK(x.sizes() == target.sizes(), "inconsistent size ", target.sizes(),
              " for multi-target of input ", x.sizes());
  Tensor is_target = contiguous(target, x.scalar_type());
  if (x.dim() < 2) return {scalar(x), is_target};
  if (reduction == kNone) return {contiguous({x.size(0)}, x), is_target};
  const Tensor each = contiguous({x.size(0)}, x);
  return {scalar(x), is_target};
}

void add_class_losses(Table& table) {
  table.rule("nll_loss2d_forward", nll_2d);
  table.rule("multi_margin_loss", multi_margin);
  table.rule("multilabel_margin_loss_forward", multilabel_margin);
  table.contiguous_as(
      1, {"nll_loss2d_backward", "multi_margin_loss_backward", "multilabel_margin_loss_backward"});
}

// ---- Connectionist temporal classification ----

// Lengths read from a card without data are zero: then each target may be as long as the longest in
// the tensor.
std::int64_t longest(const Tensor& targets, IntArrayRef lengths) {
  std::int64_t most = 0;
  for (const std::int64_t length : lengths) most = std::max(most, length);
  return most == 0 && targets.dim() == 2 ? targets.size(1) : most;
}

// Source: aten/src/ATen/native/cuda/LossCTC.cu.
Two ctc(const Tensor& log_probs, const Tensor& targets, IntArrayRef, IntArrayRef target_lengths,
        std::int64_t, bool) {
  const std::int64_t batch = log_probs.size(1);
  const std::int64_t states = 2 * longest(targets, target_lengths) + 1;
  const Tensor lengths[] = {contiguous({batch}, log_probs, at::kLong),
                            contiguous({batch}, log_probs, at::kLong),
                            contiguous({batch}, log_probs, at::kLong)};
  Tensor log_alpha = contiguous({batch, log_probs.size(0), states}, log_probs);
  Tensor loss = contiguous({batch}, log_probs);
  return {loss, log_alpha};
}

Tensor ctc_backward(const Tensor&, const Tensor& log_probs, const Tensor&, IntArrayRef, IntArrayRef,
                    const Tensor&, const Tensor& log_alpha, std::int64_t, bool) {
  const Tensor log_beta = contiguous(log_alpha);
  return contiguous(log_probs);
}

void add_ctc(Table& table) {
  table.rule("_ctc_loss", ctc);
  table.rule("_ctc_loss_backward", ctc_backward);
  table.rule("_ctc_loss_backward.Tensor",
             [](const Tensor& gradient, const Tensor& log_probs, const Tensor& targets,
                const Tensor&, const Tensor&, const Tensor& loss, const Tensor& log_alpha,
                std::int64_t blank, bool zero_infinity) {
               return ctc_backward(gradient, log_probs, targets, {}, {}, loss, log_alpha, blank,
                                   zero_infinity);
             });
  // CUDA runs cuDNN only for float with int targets on the host, whose gradients differ from the
  // CPU's in their last bits; here it is never chosen.
  const auto no = [](const Tensor&, const Tensor&, IntArrayRef, IntArrayRef, std::int64_t) {
    return false;
  };
  table.rule("_use_cudnn_ctc_loss", no);
  table.fill("_use_cudnn_ctc_loss", no);
}

}  // namespace

void add_loss(Table& table) {
  add_elementwise_losses(table);
  add_class_losses(table);
  add_ctc(table);
}

}  // namespace headroom::sim::rules
