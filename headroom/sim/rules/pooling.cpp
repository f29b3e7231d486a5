// Pooling operators without a Meta kernel.
#include <ATen/native/Pool.h>

#include "headroom/sim/rules/families.h"
#include "headroom/sim/rules/results.h"

namespace headroom::sim::rules {
namespace {

// ---- Adaptive ----

// Source: aten/src/ATen/native/cuda/AdaptiveAveragePooling.cu.
Tensor adaptive_2d(const Tensor& x, IntArrayRef size) {
  const MemoryFormat format = x.suggest_memory_format();
  const Tensor input = as_contiguous(x, format);
  return in_format(with_last(x.sizes(), size), x, format);
}

Tensor adaptive_2d_backward(const Tensor& gradient, const Tensor& x) {
  const MemoryFormat format = x.suggest_memory_format();
  Tensor result = in_format(x.sizes(), x, format);
  const Tensor in_same_format = as_contiguous(gradient, format);
  return result;
}

// Source: aten/src/ATen/native/cuda/AdaptiveAveragePooling3d.cu: contiguous in any case.
Tensor adaptive_3d(const Tensor& x, IntArrayRef size) {
  const Tensor input = x.dim() == 4 ? x : as_contiguous(x);
  return contiguous(with_last(x.sizes(), size), x);
}

Tensor adaptive_3d_backward(const Tensor& gradient, const Tensor& x) {
  Tensor result = contiguous(x);
  const Tensor in_order = as_contiguous(gradient);
  return result;
}

// ---- Maximum ----

// Channels last also counts for a single sample.
// Source: aten/src/ATen/native/cuda/DilatedMaxPool3d.cu.
MemoryFormat format_3d(const Tensor& x) {
  return x.dim() == 5 ? x.suggest_memory_format() : MemoryFormat::Contiguous;
}

Two max_pool_3d(const Tensor& x, IntArrayRef kernel, IntArrayRef stride, IntArrayRef padding,
                IntArrayRef dilation, bool ceil) {
  TORCH_CHECK(x.dim() == 4 || x.dim() == 5,
              "non-empty 4D or 5D (batch mode) tensor expected for input, but got ", x.sizes());
  Sizes last;
  for (std::size_t i = 0; i < 3; ++i) {
    const std::int64_t step = stride.empty() ? each(kernel, i) : each(stride, i);
    last.push_back(at::native::pooling_output_shape(x.size(static_cast<std::int64_t>(i) - 3),
                                                    each(kernel, i), each(padding, i), step,
                                                    each(dilation, i), ceil));
    TORCH_CHECK(last.back() >= 1, "max_pool3d: the output of input ", x.sizes(),
                " is too small: ", last);
  }
  const MemoryFormat format = format_3d(x);
  const Tensor input = as_contiguous(x, format);
  const Sizes sizes = with_last(x.sizes(), last);
  Tensor out = in_format(sizes, x, format);
  Tensor indices = at::empty(sizes, x.options().dtype(at::kLong), format);
  return {out, indices};
}

Tensor max_pool_3d_backward(const Tensor& gradient, const Tensor& x, IntArrayRef, IntArrayRef,
                            IntArrayRef, IntArrayRef, bool, const Tensor& indices) {
  const MemoryFormat format = format_3d(x);
  Tensor result = in_format(x.sizes(), x, format);
  const Tensor copies[] = {as_contiguous(gradient, format), as_contiguous(indices, format)};
  return result;
}

// Source: aten/src/ATen/native/cuda/MaxUnpooling.cu.
Tensor unpool(const Tensor& x, const Tensor& indices, IntArrayRef size) {
  TORCH_CHECK(x.sizes() == indices.sizes(), "Expected shape of indices to be: ", x.sizes(),
              " but got: ", indices.sizes());
  const Tensor copies[] = {as_contiguous(x), as_contiguous(indices)};
  return contiguous(with_last(x.sizes(), size), x);
}

}  // namespace

void add_pooling(Table& table) {
  table.rule("_adaptive_avg_pool2d", adaptive_2d);
  table.rule("_adaptive_avg_pool2d_backward", adaptive_2d_backward);
  table.rule("_adaptive_avg_pool3d", adaptive_3d);
  table.rule("_adaptive_avg_pool3d_backward", adaptive_3d_backward);
  table.rule("adaptive_avg_pool3d_backward.grad_input",
             [](const Tensor& gradient, const Tensor& x, const Tensor& out) {
               const Tensor in_order = as_contiguous(gradient);
               return out.resize_(x.sizes());
             });
  table.rule("max_pool3d_with_indices", max_pool_3d);
  table.rule("max_pool3d_with_indices_backward", max_pool_3d_backward);
  table.rule("max_unpool2d", unpool);
  table.rule("max_unpool3d", [](const Tensor& x, const Tensor& indices, IntArrayRef size,
                                IntArrayRef, IntArrayRef) { return unpool(x, indices, size); });
  // Source: aten/src/ATen/native/cuda/FractionalMaxPool3d.cu.
  table.contiguous_as(1, {"fractional_max_pool3d_backward"});
}

}  // namespace headroom::sim::rules
