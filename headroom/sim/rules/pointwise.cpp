// Activations for which LibTorch has no shapes, or whose kept tensors differ on CUDA.
#include "headroom/sim/rules/families.h"
#include "headroom/sim/rules/results.h"

namespace headroom::sim::rules {
namespace {

void add_selection(Table& table) {
  table.rule("logit", [](const Tensor& x, std::optional<double>) {
    const bool counts = at::isIntegralType(x.scalar_type(), true);
    return elementwise({x}, counts ? at::get_default_dtype_as_scalartype() : x.scalar_type());
  });
  table.rule("where.self", [](const Tensor& condition, const Tensor& a, const Tensor& b) {
    return elementwise({condition, a, b}, at::result_type(a, b));
  });
}

void add_activations(Table& table) {
  table.elementwise({"relu", "hardswish", "hardtanh", "hardswish_backward", "hardtanh_backward",
                     "mish_backward"});
  table.contiguous_as(1, {"glu_backward"});
  table.contiguous_as(0, {"rrelu_with_noise"});
  table.like(0, {"_prelu_kernel"});
  table.rule("_prelu_kernel_backward",
             [](const Tensor& gradient, const Tensor& x, const Tensor& weight) {
               Tensor for_x = elementwise({x, weight, gradient});
               Tensor for_weight = like(for_x);
               return Two(for_x, for_weight);
             });
}

// ---- Log sigmoid: the CPU keeps a buffer for the backward pass, CUDA computes it again ----

// Source: aten/src/ATen/native/cuda/Activation.cpp, log_sigmoid_forward_cuda.
Two log_sigmoid(const Tensor& x) {
  Tensor out = follows_cuda() ? like(x) : contiguous(x);
  Tensor buffer = follows_cuda() ? contiguous({0}, x) : contiguous(x);
  return {out, buffer};
}

void add_log_sigmoid(Table& table) {
  table.rule("log_sigmoid_forward", log_sigmoid);
  table.fill("log_sigmoid_forward", [](const Tensor& x) {
    auto [out, buffer] = at::log_sigmoid_forward(x);
    return Two(out, follows_cuda() ? contiguous({0}, x) : buffer);
  });
  table.like(0, {"log_sigmoid_backward"});
  table.fill("log_sigmoid_backward",
             [](const Tensor& gradient, const Tensor& x, const Tensor& buffer) {
               return at::log_sigmoid_backward(
                   gradient, x,
                   buffer.numel() == x.numel() ? buffer : std::get<1>(at::log_sigmoid_forward(x)));
             });
}

// ---- Softmax ----

// The kernels take contiguous tensors, of CUDA and of the CPU.
// Source: aten/src/ATen/native/cuda/SoftMax.cu, host_softmax and host_softmax_backward, and
// aten/src/ATen/native/SoftMax.cpp.
Tensor softmax(const Tensor& x, std::int64_t dim, bool to_float) {
  (void)c10::maybe_wrap_dim(dim, x.dim());  // throws if there is none
  Tensor result = contiguous(x, to_float ? at::kFloat : x.scalar_type());
  const Tensor ready = as_contiguous(x);
  return result;
}

Tensor log_softmax_backward(const Tensor& gradient, const Tensor& result, std::int64_t,
                            ScalarType type) {
  Tensor for_x = contiguous(gradient, type);
  const Tensor ready = as_contiguous(gradient), ready_result = as_contiguous(result);
  return for_x;
}

// CUDA multiplies gradient and result into a temporary first.
// Source: aten/src/ATen/native/cuda/SoftMax.cu, softmax_backward_cuda_out.
Tensor softmax_backward(const Tensor& gradient, const Tensor& result, std::int64_t,
                        ScalarType type) {
  Tensor for_x = contiguous(gradient, type);
  const Tensor product = follows_cuda() ? elementwise({gradient, result}) : gradient;
  const Tensor ready = as_contiguous(product), ready_result = as_contiguous(result);
  return for_x;
}

// CUDA goes from half to float in one kernel; the CPU's kernels need a copy first.
void add_softmax_of_half(Table& table) {
  const auto widened = [](const Tensor& x, bool to_float) {
    return to_float ? x.to(at::kFloat) : x;
  };
  table.fill("_softmax", [=](const Tensor& x, std::int64_t dim, bool to_float) {
    return at::_softmax(widened(x, to_float), dim, false);
  });
  table.fill("_log_softmax", [=](const Tensor& x, std::int64_t dim, bool to_float) {
    return at::_log_softmax(widened(x, to_float), dim, false);
  });
  table.fill("_softmax_backward_data", [](const Tensor& gradient, const Tensor& result,
                                          std::int64_t dim, ScalarType type) {
    return at::_softmax_backward_data(gradient, result, dim, gradient.scalar_type()).to(type);
  });
  table.fill("_log_softmax_backward_data", [](const Tensor& gradient, const Tensor& result,
                                              std::int64_t dim, ScalarType type) {
    return at::_log_softmax_backward_data(gradient, result, dim, gradient.scalar_type()).to(type);
  });
}

void add_softmax(Table& table) {
  table.rule("_softmax", softmax);
  table.rule("_log_softmax", softmax);
  table.rule("_softmax_backward_data", softmax_backward);
  table.rule("_log_softmax_backward_data", log_softmax_backward);
}

}  // namespace

void add_pointwise(Table& table) {
  add_selection(table);
  add_activations(table);
  add_log_sigmoid(table);
  add_softmax(table);
  add_softmax_of_half(table);
}

}  // namespace headroom::sim::rules
