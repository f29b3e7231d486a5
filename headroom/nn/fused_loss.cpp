#include "headroom/nn/fused_loss.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/libtorch/follow.h"
#include "headroom/libtorch/saved_tensors.h"
#include "headroom/nn/detail/check_labels.h"

namespace headroom::nn {
namespace {

using at::Tensor;
using Variables = torch::autograd::variable_list;

bool autocasts(const Tensor& weight) {
  return at::autocast::is_autocast_enabled(weight.device().type()) &&
         weight.scalar_type() != at::kDouble;
}

void check(const FusedHead& head, const Tensor& states, const Tensor& labels,
           const FusedLossOptions& options) {
  const auto expect = [](bool is, const char* wanted, const std::string& received,
                         const char* hint = "") {
    if (!is) throw UsageError(expectation("fused_cross_entropy", wanted, received, hint));
  };
  const Tensor& weight = head.weight;
  expect(options.rows >= 0, "blocks of 1 row or more, or 0", std::to_string(options.rows));
  expect(options.smoothing >= 0 && options.smoothing <= 1, "a label smoothing from 0 to 1",
         std::to_string(options.smoothing));
  detail::check_labels("fused_cross_entropy", states, labels);
  expect(labels.scalar_type() == at::kLong, "labels of type int64",
         c10::toString(labels.scalar_type()));
  expect(weight.defined() && weight.dim() == 2, "a weight [classes, width]",
         weight.defined() ? c10::str(weight.dim(), " dimensions") : "an undefined one");
  expect(!head.bias.defined() || head.bias.sizes() == weight.sizes().slice(0, 1),
         "a bias for each class",
         c10::str(head.bias.numel(), " beside ", weight.size(0), " classes"));
  expect(states.scalar_type() == weight.scalar_type() || autocasts(weight),
         "states of the weight's type",
         c10::str(states.scalar_type(), " beside ", weight.scalar_type()),
         "autocast, or states.to(weight.dtype())");
  expect(states.size(-1) == weight.size(1), "states as wide as the head's weight",
         c10::str(states.size(-1), " beside ", weight.size(1)));
  expect(!libtorch::is_followed(weight) || !head.parameters.empty(),
         "the parameters of the weight's adapter in `parameters`", "none",
         "the layer's parameters()");
}

// The type of the head's product.
at::ScalarType computing_type(const Tensor& weight) {
  return autocasts(weight) ? at::autocast::get_autocast_dtype(weight.device().type())
                           : weight.scalar_type();
}

// Half precision becomes float, for softmax and loss, a sixteenth of a block at a time.
constexpr std::int64_t kParts = 16;

// Beside the gradients the plain loss has two or more tensors of logits at its peak. A block takes
// 4 bytes for each of its logits in float32, and 2.25 in half precision: its own 2 and float's 4
// for a sixteenth. So a block of a sixth of the rows takes less than a tenth of that. Functions
// behind the product have temporaries of their own.
std::int64_t rows_of_block(std::int64_t rows, bool is_linear) {
  constexpr std::int64_t kMost = 1024, kMultiple = 8;
  const std::int64_t blocks = is_linear ? 6 : 16;
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
// gradient's type. In parts, because on the CPU mixed types need temporaries, which stay in the
// cache.
void scale(const Tensor& gradient, const Tensor& factor) {
  if (!at::isReducedFloatingType(gradient.scalar_type())) {
    gradient.mul_(factor);
    return;
  }
  const std::int64_t part = gradient.is_cpu() ? 1 << 18 : 1 << 22;
  const Tensor flat = gradient.view(-1), exact = factor.view(1);
  for (std::int64_t start = 0; start < flat.numel(); start += part)
    flat.slice(0, start, std::min(start + part, flat.numel())).mul_(exact);
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
    const std::int64_t rows = labels_.numel();
    const bool is_linear = !followed_ && !head_.after;
    const std::int64_t block =
        std::min(rows, options_.rows > 0 ? options_.rows : rows_of_block(rows, is_linear));
    const std::int64_t first = is_linear ? rows_of_first(rows, block) : 0;
    make_sums(first > 0);
    if (first > 0) run_first(first, block);
    if (is_linear)
      run_linear(first, block);
    else
      for (std::int64_t start = 0; start < rows; start += block)
        run_graph(start, std::min(start + block, rows));
    for (std::size_t i = 2; i < inputs_.size(); ++i)
      if (wanted_[i]) gradients_[i] = gradients_[i].to(inputs_[i].scalar_type());
    return finished();
  }

  // The gradients, once: the caller is then their only owner.
  Variables take(const Tensor& incoming) {
    if (gradients_.empty())
      throw UsageError(expectation("fused_cross_entropy", "one backward pass of its result",
                                   "a second one", "the loss once more"));
    if (at::GradMode::is_enabled())
      throw UsageError(expectation("fused_cross_entropy", "a backward pass without create_graph",
                                   "one for second derivatives", "the plain loss"));
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
    sum_.reset();  // it may be the result, which refers to this
  }

 private:
  void make_sums(bool overwrites_weight) {
    sum_ = at::zeros({}, inputs_[0].options().dtype(wide_));
    const auto empty_like = [&](const Tensor& input) {
      return at::empty(input.sizes(), input.options(), at::MemoryFormat::Contiguous);
    };
    if (wanted_[0]) gradients_[0] = empty_like(inputs_[0]);
    if (wanted_[1])
      gradients_[1] = followed_           ? zeros_in_float(inputs_[1])
                      : overwrites_weight ? empty_like(inputs_[1])
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

  // The rows whose logits find a place in the memory of the weight's gradient (run_first). 0: none.
  [[nodiscard]] std::int64_t rows_of_first(std::int64_t rows, std::int64_t block) const {
    const std::int64_t width = inputs_[1].size(1);
    if (!wanted_[1] || inputs_[1].scalar_type() != type_ || block >= width) return 0;
    return std::min(rows, static_cast<std::int64_t>(std::sqrt(static_cast<double>(block * width))));
  }

  // The first rows' logits are made in the memory of the weight's gradient, which is not written
  // before they are done. Only the columns of the classes whose gradients then overwrite the logits
  // are copied: rows * rows / width rows of logits, no more than a block has. So the large sum is
  // read and written for fewer blocks.
  void run_first(std::int64_t rows, std::int64_t block) {
    const Tensor states = rows_of_states(0, rows);
    const Tensor& sum = gradients_[1];
    const std::int64_t classes = sum.size(0), width = sum.size(1);
    const Tensor logits = sum.view(-1).slice(0, 0, rows * classes).view({rows, classes});
    make_logits(logits, states);
    add_losses(logits, 0, (block + 1) / 2);
    add_gradients(logits, 0);
    const std::int64_t overwritten = (rows * classes + width - 1) / width;
    const Tensor copy = logits.slice(1, 0, overwritten).clone(at::MemoryFormat::Contiguous);
    Tensor before = sum.slice(0, 0, overwritten), behind = sum.slice(0, overwritten);
    at::mm_out(behind, logits.slice(1, overwritten).t(), states);
    at::mm_out(before, copy.t(), states);
  }

  void run_linear(std::int64_t start, std::int64_t most) {
    const std::int64_t rows = labels_.numel();
    if (start == rows) return;
    const std::int64_t blocks = (rows - start + most - 1) / most;
    const std::int64_t block = (rows - start + blocks - 1) / blocks;
    const Tensor memory = at::empty({block, weight_.size(0)}, weight_.options());
    for (; start < rows; start += block) {
      const std::int64_t count = std::min(block, rows - start);
      const Tensor states = rows_of_states(start, start + count);
      const Tensor logits = memory.slice(0, 0, count);
      make_logits(logits, states);
      add_losses(logits, start, (block + kParts - 1) / kParts);
      if (wants_any_) add_gradients(logits, start);
      if (wanted_[1]) add_product(gradients_[1], logits, states);
    }
  }

  void make_logits(Tensor logits, const Tensor& states) const {
    if (bias_.defined())
      at::addmm_out(logits, bias_, states, weight_.t());
    else
      at::mm_out(logits, states, weight_.t());
  }

  // Turns the logits into their gradient. In half precision it takes `part` rows in float at a
  // time.
  void add_losses(const Tensor& logits, std::int64_t start, std::int64_t part) {
    if (type_ == wide_) {
      add_loss(logits, logits, start);
      return;
    }
    const std::int64_t rows = logits.size(0);
    const Tensor memory =
        at::empty({std::min(part, rows), logits.size(1)}, logits.options().dtype(wide_));
    for (std::int64_t i = 0; i < rows; i += part) {
      const Tensor some = logits.slice(0, i, std::min(i + part, rows));
      add_loss(memory.slice(0, 0, some.size(0)).copy_(some), some, start + i);
    }
  }

  // Gradients of states and bias through the head's product, given that of the product's result.
  void add_gradients(const Tensor& gradient, std::int64_t start) {
    if (wanted_[0]) {
      Tensor to = gradients_[0].slice(0, start, start + gradient.size(0));
      if (to.scalar_type() == type_)
        at::mm_out(to, gradient, weight_);
      else
        to.copy_(at::mm(gradient, weight_));
    }
    if (bias_.defined() && wanted_[2])
      gradients_[2].add_(at::sum(gradient, at::IntArrayRef{0}, false, wide_));
  }

  // The functions behind the product have a graph of their own, a followed weight's product, too.
  // It ends before the block does, so that no scope around the loss (offload) applies to
  // it.
  void run_graph(std::int64_t start, std::int64_t end) {
    const libtorch::OuterScope no_hooks(nullptr);
    const Tensor states = rows_of_states(start, end).detach().requires_grad_(wants_any_);
    Tensor product, logits;
    if (!followed_)
      product = at::linear(states.detach(), weight_, bias_).requires_grad_(wants_any_);
    {
      const at::AutoGradMode with_graph(wants_any_);
      logits = followed_ ? at::linear(states, weight_, bias_) : product;
      if (head_.after) logits = head_.after(states, std::move(logits));
    }
    const Tensor wide = logits.detach().to(wide_, false, true);
    const bool narrows = wants_any_ && logits.scalar_type() != wide_;
    const Tensor gradient = narrows ? at::empty_like(logits) : wide;
    add_loss(wide, gradient, start);
    if (!wants_any_) return;
    Variables leaves = {followed_ ? states : product, states};
    std::vector<std::size_t> places;
    for (std::size_t i = followed_ ? 1 : first_parameter(); i < inputs_.size(); ++i) {
      if (!wanted_[i]) continue;
      leaves.push_back(inputs_[i]);
      places.push_back(i);
    }
    const Variables found =
        torch::autograd::grad({std::move(logits)}, leaves, {gradient}, false, false, true);
    if (!followed_ && found[0].defined()) {
      add_gradients(found[0], start);
      if (wanted_[1]) add_product(gradients_[1], found[0], states.detach());
    }
    if (wanted_[0] && found[1].defined()) {
      Tensor to = gradients_[0].slice(0, start, end);
      followed_ ? to.copy_(found[1]) : to.add_(found[1]);
    }
    for (std::size_t i = 0; i < places.size(); ++i)
      if (found[i + 2].defined()) gradients_[places[i]].add_(found[i + 2]);
  }

  [[nodiscard]] std::size_t first_parameter() const { return bias_.defined() ? 3 : 2; }

  // Adds the loss of rows from `start` on to the sum, and makes the gradient of their logits if one
  // is wanted. `wide` has the logits in float and is changed; `gradient` may be the same. A
  // row whose label is ignored gets a gradient of zero.
  void add_loss(const Tensor& wide, Tensor gradient, std::int64_t start) {
    const Tensor labels = labels_.slice(0, start, start + wide.size(0)).unsqueeze(1);
    const Tensor ignored = labels == options_.ignored;
    const Tensor index = labels.masked_fill(ignored, 0);
    const double kept = 1 - options_.smoothing;
    const Tensor most = wide.amax(1, true);
    const Tensor own = wide.gather(1, index);
    Tensor loss = most - own * kept;
    // A column is small: changed in place, a training step would keep a copy of it (train::Step).
    if (options_.smoothing > 0) loss = loss - wide.mean(1, true) * options_.smoothing;
    wide.sub_(most).exp_();
    Tensor sum = wide.sum(1, true);
    sum_ = sum_ + (loss + sum.log()).masked_fill(ignored, 0).sum();
    if (!wants_any_) return;
    // softmax - (1 - smoothing) [own class] - smoothing / classes, all multiplied by `sum`
    const double each = options_.smoothing / static_cast<double>(wide.size(1));
    wide.scatter_(1, index, (own - most).exp() - sum * kept);
    if (options_.smoothing > 0) wide.sub_(sum * each);
    sum = sum.masked_fill(ignored, std::numeric_limits<double>::infinity());
    at::div_out(gradient, wide, sum);
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
