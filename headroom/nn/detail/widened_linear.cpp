#include "headroom/nn/detail/widened_linear.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

namespace headroom::nn::detail {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

Tensor as_matrix(const Tensor& tensor) {
  return tensor.reshape({-1, tensor.size(-1)});
}

struct WidenedLinear final : torch::autograd::Function<WidenedLinear> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight) {
    context->save_for_backward({x, weight});
    return at::linear(x.to(weight.scalar_type()), weight);
  }

  // The products of LibTorch's own backward pass, in its order.
  static tensor_list backward(AutogradContext* context, const tensor_list& gradients) {
    const tensor_list saved = context->get_saved_variables();
    const Tensor &x = saved[0], &weight = saved[1];
    const Tensor gradient = as_matrix(gradients[0]);
    Tensor of_x, of_weight;
    if (context->needs_input_grad(0))
      of_x = at::mm(gradient, weight).view(x.sizes()).to(x.scalar_type());
    if (context->needs_input_grad(1))
      of_weight = at::mm(gradient.t(), as_matrix(x.to(weight.scalar_type())));
    return {of_x, of_weight};
  }
};

}  // namespace

Tensor widened_linear(const Tensor& x, const Tensor& weight) {
  return WidenedLinear::apply(x, weight);
}

}  // namespace headroom::nn::detail
