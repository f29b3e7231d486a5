#include "headroom/nn/fused_loss.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/libtorch/follow.h"

namespace headroom::nn {
namespace {

using at::Tensor;
using Variables = torch::autograd::variable_list;

void check(const FusedHead& head, const Tensor& states, const Tensor& labels,
           const FusedLossOptions& options) {
  if (options.rows < 0)
    throw UsageError(expectation("fused_cross_entropy", "blocks of 1 row or more, or 0",
                                 std::to_string(options.rows)));
  if (!(options.smoothing >= 0 && options.smoothing <= 1))
    throw UsageError(expectation("fused_cross_entropy", "a label smoothing from 0 to 1",
                                 std::to_string(options.smoothing)));
  if (states.size(-1) != head.weight.size(1))
    throw UsageError(expectation(
        "fused_cross_entropy", "states as wide as the head's weight",
        std::to_string(states.size(-1)) + " beside " + std::to_string(head.weight.size(1))));
  if (states.numel() != labels.numel() * states.size(-1) || labels.numel() == 0)
    throw UsageError(expectation("fused_cross_entropy", "a label for each row of states",
                                 std::to_string(labels.numel()) + " labels for " +
                                     std::to_string(states.numel() / states.size(-1)) + " rows"));
  if (libtorch::is_followed(head.weight) && head.parameters.empty())
    throw UsageError(expectation("fused_cross_entropy",
                                 "the parameters of the weight's adapter in `parameters`", "none",
                                 "the layer's parameters()"));
}

bool autocasts(const Tensor& weight) {
  return at::autocast::is_autocast_enabled(weight.device().type()) &&
         weight.scalar_type() != at::kDouble;
}

// The type of the head's product.
at::ScalarType computing_type(const Tensor& weight) {
  return autocasts(weight) ? at::autocast::get_autocast_dtype(weight.device().type())
                           : weight.scalar_type();
}

// Half precision becomes float, for softmax and loss, an eighth of a block at a time.
constexpr std::int64_t kParts = 8;

// Beside the gradients the plain loss has two or three tensors of logits at its peak. A block takes
// 4 bytes for each of its logits in float32, and 2.5 in half precision: its own 2 and float's 4 for
// an eighth. So a block of a sixth of the rows, or of an eighth, takes less than a tenth of that;
// and a gradient in half precision is rounded eight times. Functions behind the product have
// temporaries of their own.
std::int64_t rows_of_block(std::int64_t rows, at::ScalarType type, bool is_linear) {
  constexpr std::int64_t kMost = 1024, kMultiple = 8;
  const std::int64_t blocks = !is_linear ? 16 : at::isReducedFloatingType(type) ? 8 : 6;
  const std::int64_t part = (rows + blocks - 1) / blocks;
  return std::min(kMost, (part + kMultiple - 1) / kMultiple * kMultiple);
}

// weight_gradient += gradient^T states. Products of another type than the sum's are added in parts
// of classes, each of a block's size.
void add_product(Tensor& sum, const Tensor& gradient, const Tensor& states) {
  if (sum.scalar_type() == gradient.scalar_type()) {
    sum.addmm_(gradient.t(), states);
    return;
  }
  const std::int64_t part = std::max<std::int64_t>(1, gradient.numel() / states.size(1));
  for (std::int64_t start = 0; start < sum.size(0); start += part) {
    const std::int64_t end = std::min(start + part, sum.size(0));
    sum.slice(0, start, end).add_(at::mm(gradient.slice(1, start, end).t(), states));
  }
}

// In place and without rounding the factor: as a tensor without dimensions it would first get the
// gradient's type. In parts, because on the CPU mixed types need temporaries.
void scale(const Tensor& gradient, const Tensor& factor) {
  if (!at::isReducedFloatingType(gradient.scalar_type())) {
    gradient.mul_(factor);
    return;
  }
  constexpr std::int64_t kPart = 1 << 22;
  const Tensor flat = gradient.view(-1), exact = factor.view(1);
  for (std::int64_t start = 0; start < flat.numel(); start += kPart)
    flat.slice(0, start, std::min(start + kPart, flat.numel())).mul_(exact);
}

Tensor zeros_in_float(const Tensor& like) {
  return at::zeros(like.sizes(),
                   like.options().dtype(at::promote_types(like.scalar_type(), at::kFloat)));
}

// The loss by blocks of rows, and gradients of the sum over the counted labels. Their inputs are
// the states, the weight, the bias if there is one, and the head's further parameters.
class Blocks : public torch::CustomClassHolder {
 public:
  Blocks(FusedHead head, const Tensor& states, Tensor labels, const FusedLossOptions& options)
      : head_(std::move(head)),
        labels_(std::move(labels)),
        options_(options),
        type_(computing_type(head_.weight)),
        wide_(at::promote_types(type_, at::kFloat)),
        followed_(libtorch::is_followed(head_.weight)),
        casts_(!followed_ && autocasts(head_.weight)) {
    inputs_ = {states, head_.weight};
    if (head_.bias.defined()) inputs_.push_back(head_.bias);
    inputs_.insert(inputs_.end(), head_.parameters.begin(), head_.parameters.end());
    gradients_.resize(inputs_.size());
    for (const Tensor& input : inputs_)
      wanted_.push_back(at::GradMode::is_enabled() && input.requires_grad());
    wants_any_ = std::find(wanted_.begin(), wanted_.end(), true) != wanted_.end();
  }

  [[nodiscard]] const Variables& inputs() const { return inputs_; }
  [[nodiscard]] bool wants_any() const { return wants_any_; }

  Tensor loss() {
    const at::NoGradGuard no_grad;
    weight_ = followed_ ? head_.weight : head_.weight.to(type_);
    bias_ = followed_ || !head_.bias.defined() ? head_.bias : head_.bias.to(type_);
    make_sums();
    const std::int64_t rows = labels_.numel();
    const bool is_linear = !followed_ && !head_.after;
    const std::int64_t block =
        options_.rows > 0 ? options_.rows : rows_of_block(rows, type_, is_linear);
    for (std::int64_t start = 0; start < rows; start += block) {
      const std::int64_t end = std::min(start + block, rows);
      if (is_linear)
        run_linear(start, end);
      else
        run_graph(start, end);
    }
    for (std::size_t i = 2; i < inputs_.size(); ++i)
      if (wanted_[i]) gradients_[i] = gradients_[i].to(inputs_[i].scalar_type());
    return finished();
  }

  // The gradients, once: the caller is then their only owner.
  Variables take(const Tensor& incoming) {
    if (gradients_.empty())
      throw UsageError(expectation("fused_cross_entropy", "one backward pass of its result",
                                   "a second one", "the loss once more"));
    const at::NoGradGuard no_grad;
    Tensor factor = incoming.to(wide_);
    if (counted_.defined()) factor = factor / counted_.clamp_min(1);
    for (const Tensor& gradient : gradients_)
      if (gradient.defined()) scale(gradient, factor);
    return std::exchange(gradients_, {});
  }

  // Releases the inputs: the graph's edges are enough for the backward pass.
  void release() {
    head_ = {};
    inputs_.clear();
    weight_.reset();
    bias_.reset();
  }

 private:
  void make_sums() {
    sum_ = at::zeros({}, inputs_[0].options().dtype(wide_));
    if (wanted_[0])
      gradients_[0] =
          at::empty(inputs_[0].sizes(), inputs_[0].options(), at::MemoryFormat::Contiguous);
    if (wanted_[1])
      gradients_[1] = followed_ ? zeros_in_float(inputs_[1])
                                : at::zeros(inputs_[1].sizes(), inputs_[1].options());
    for (std::size_t i = 2; i < inputs_.size(); ++i)
      if (wanted_[i]) gradients_[i] = zeros_in_float(inputs_[i]);
  }

  Tensor finished() {
    if (options_.sum) return sum_;
    counted_ = (labels_ != options_.ignored).sum().to(wide_);
    return sum_ / counted_;
  }

  [[nodiscard]] Tensor rows_of_states(std::int64_t start, std::int64_t end) const {
    const Tensor rows = inputs_[0].detach().slice(0, start, end);
    return casts_ ? rows.to(type_) : rows;
  }

  void run_linear(std::int64_t start, std::int64_t end) {
    const Tensor states = rows_of_states(start, end);
    const Tensor logits = at::linear(states, weight_, bias_);
    const std::int64_t part = type_ == wide_ ? end - start : (end - start + kParts - 1) / kParts;
    for (std::int64_t i = start; i < end; i += part) {
      const std::int64_t last = std::min(i + part, end);
      (void)add_loss(logits.slice(0, i - start, last - start), i, last, true);
    }
    if (wants_any_) add_gradients(logits, states, start, end);
  }

  // Gradients through the head's product, given that of the product's result.
  void add_gradients(const Tensor& gradient, const Tensor& states, std::int64_t start,
                     std::int64_t end) {
    if (wanted_[0]) {
      Tensor to = gradients_[0].slice(0, start, end);
      if (to.scalar_type() == type_)
        at::mm_out(to, gradient, weight_);
      else
        to.copy_(at::mm(gradient, weight_));
    }
    if (wanted_[1]) add_product(gradients_[1], gradient, states);
    if (bias_.defined() && wanted_[2])
      gradients_[2].add_(at::sum(gradient, at::IntArrayRef{0}, false, wide_));
  }

  // The functions behind the product have a graph of their own, a followed weight's product, too.
  void run_graph(std::int64_t start, std::int64_t end) {
    const Tensor states = rows_of_states(start, end).detach().requires_grad_(wants_any_);
    Tensor product, logits;
    if (!followed_)
      product = at::linear(states.detach(), weight_, bias_).requires_grad_(wants_any_);
    {
      const at::AutoGradMode with_graph(wants_any_);
      logits = followed_ ? at::linear(states, weight_, bias_) : product;
      if (head_.after) logits = head_.after(states, std::move(logits));
    }
    const Tensor gradient = add_loss(logits.detach(), start, end, false);
    if (!gradient.defined()) return;
    Variables leaves = {followed_ ? states : product, states};
    std::vector<std::size_t> places;
    for (std::size_t i = followed_ ? 1 : first_parameter(); i < inputs_.size(); ++i) {
      if (!wanted_[i]) continue;
      leaves.push_back(inputs_[i]);
      places.push_back(i);
    }
    const Variables found =
        torch::autograd::grad({std::move(logits)}, leaves, {gradient}, false, false, true);
    if (!followed_ && found[0].defined()) add_gradients(found[0], states.detach(), start, end);
    if (wanted_[0] && found[1].defined()) {
      Tensor to = gradients_[0].slice(0, start, end);
      followed_ ? to.copy_(found[1]) : to.add_(found[1]);
    }
    for (std::size_t i = 0; i < places.size(); ++i)
      if (found[i + 2].defined()) gradients_[places[i]].add_(found[i + 2]);
  }

  [[nodiscard]] std::size_t first_parameter() const { return bias_.defined() ? 3 : 2; }

  // Adds the block's loss to the sum. Returns the gradient of the logits, in place of them if they
  // are this function's to change; undefined if none is wanted. Rows whose labels do not count have
  // a gradient of zero.
  Tensor add_loss(Tensor logits, std::int64_t start, std::int64_t end, bool in_place) {
    const Tensor labels = labels_.slice(0, start, end).unsqueeze(1);
    const Tensor ignored = labels == options_.ignored;
    const Tensor index = labels.masked_fill(ignored, 0);
    const double kept = 1 - options_.smoothing;
    Tensor wide = logits.to(wide_, false, !in_place);
    const Tensor most = wide.amax(1, true);
    const Tensor own = wide.gather(1, index);
    Tensor loss = most - own * kept;
    if (options_.smoothing > 0) loss.sub_(wide.mean(1, true) * options_.smoothing);
    wide.sub_(most).exp_();
    Tensor sum = wide.sum(1, true);
    loss.add_(sum.log()).masked_fill_(ignored, 0);
    sum_.add_(loss.sum());
    if (!wants_any_) return {};
    // softmax - (1 - smoothing) [own class] - smoothing / classes, all multiplied by `sum`
    const double each = options_.smoothing / static_cast<double>(wide.size(1));
    wide.scatter_(1, index, (own - most).exp_() - sum * kept);
    if (options_.smoothing > 0) wide.sub_(sum * each);
    sum.masked_fill_(ignored, std::numeric_limits<double>::infinity());
    if (logits.scalar_type() == wide_) return wide.div_(sum);
    if (!in_place) logits = at::empty_like(logits);
    return at::div_out(logits, wide, sum);
  }

  FusedHead head_;
  const Tensor labels_;
  const FusedLossOptions options_;
  const at::ScalarType type_, wide_;
  const bool followed_;  // the weight: its product, too, has a graph
  const bool casts_;
  Variables inputs_, gradients_;
  std::vector<bool> wanted_;
  bool wants_any_ = false;
  Tensor weight_, bias_;  // in the type of the product
  Tensor sum_, counted_;
};

struct Fused : torch::autograd::Function<Fused> {
  using Context = torch::autograd::AutogradContext;

  static Tensor forward(Context* context, at::TensorList /*inputs*/,
                        const c10::intrusive_ptr<Blocks>& blocks) {
    Tensor loss = blocks->loss();
    blocks->release();
    context->saved_data["blocks"] = c10::IValue::make_capsule(blocks);
    return loss;
  }

  static Variables backward(Context* context, const Variables& incoming) {
    const auto blocks =
        c10::static_intrusive_pointer_cast<Blocks>(context->saved_data.at("blocks").toCapsule());
    Variables result = blocks->take(incoming[0]);
    result.emplace_back();  // for `blocks`
    return result;
  }
};

}  // namespace

Tensor fused_cross_entropy(const FusedHead& head, const Tensor& states, const Tensor& labels,
                           const FusedLossOptions& options) {
  check(head, states, labels, options);
  const auto blocks = c10::make_intrusive<Blocks>(head, states.reshape({-1, states.size(-1)}),
                                                  labels.reshape({-1}), options);
  if (!blocks->wants_any()) return blocks->loss();
  const Variables inputs = blocks->inputs();
  return Fused::apply(at::TensorList(inputs), blocks);
}

}  // namespace headroom::nn
