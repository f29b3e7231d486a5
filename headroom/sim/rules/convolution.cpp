// Convolutions as cuDNN runs them. Results are channels last if the input or the weight is, and
// inputs of another format are copied. cuDNN's own workspace depends on chip, version and
// algorithm, and is not counted.
// Source: aten/src/ATen/native/Convolution.cpp, aten/src/ATen/native/ConvUtils.h,
// aten/src/ATen/native/cudnn/ConvShared.cpp.
#include <ATen/native/im2col_shape_check.h>

#include <algorithm>

#include "headroom/sim/rules/families.h"
#include "headroom/sim/rules/results.h"

namespace headroom::sim::rules {
namespace {

// One spatial dimension runs as two, always contiguous; so does double.
MemoryFormat format_of(const Tensor& a, const Tensor& b) {
  if (a.scalar_type() == at::kDouble || b.scalar_type() == at::kDouble)
    return MemoryFormat::Contiguous;
  const MemoryFormat last = a.dim() == 4   ? MemoryFormat::ChannelsLast
                            : a.dim() == 5 ? MemoryFormat::ChannelsLast3d
                                           : MemoryFormat::Contiguous;
  const bool either = a.suggest_memory_format() == last || b.suggest_memory_format() == last;
  return either ? last : MemoryFormat::Contiguous;
}

// PyTorch's words.
void check_channels(const Tensor& x, const Tensor& weight, const Optional& bias, bool transposed,
                    std::int64_t groups) {
  TORCH_CHECK(x.dim() == weight.dim(), "Expected ", weight.dim(), "-dimensional input for ",
              weight.dim(), "-dimensional weight ", weight.sizes(), ", but got ", x.dim(),
              "-dimensional input of size ", x.sizes(), " instead");
  const std::int64_t expected = transposed ? weight.size(0) : weight.size(1) * groups;
  TORCH_CHECK(x.size(1) == expected, "Given ", transposed ? "transposed=1, " : "groups=",
              transposed ? std::string() : std::to_string(groups) + ", ", "weight of size ",
              weight.sizes(), ", expected input", x.sizes(), " to have ", expected,
              " channels, but got ", x.size(1), " channels instead");
  const std::int64_t made = transposed ? weight.size(1) * groups : weight.size(0);
  TORCH_CHECK(!is_defined(bias) || (bias->dim() == 1 && bias->size(0) == made),
              "Given weight of size ", weight.sizes(), ", expected bias to be 1-dimensional with ",
              made, " elements, but got bias of size ",
              is_defined(bias) ? bias->sizes() : IntArrayRef());
}

struct Geometry {
  IntArrayRef stride, padding, dilation, output_padding;
  bool transposed;
  std::int64_t groups;
};

Sizes output_sizes(const Tensor& x, const Tensor& weight, const Geometry& g) {
  Sizes sizes{x.size(0), g.transposed ? weight.size(1) * g.groups : weight.size(0)};
  for (std::size_t i = 0; i + 2 < static_cast<std::size_t>(x.dim()); ++i) {
    const auto dim = static_cast<std::int64_t>(i) + 2;
    const std::int64_t kernel = each(g.dilation, i) * (weight.size(dim) - 1) + 1;
    const std::int64_t padding = 2 * each(g.padding, i);
    const std::int64_t stride = each(g.stride, i);
    TORCH_CHECK(stride > 0, "non-positive stride is not supported");
    TORCH_CHECK(g.transposed || x.size(dim) + padding >= kernel,
                "Calculated padded input size per channel: (", x.size(dim) + padding,
                "). Kernel size: (", kernel,
                "). Kernel size can't be greater than actual input size");
    sizes.push_back(g.transposed
                        ? (x.size(dim) - 1) * stride - padding + kernel + each(g.output_padding, i)
                        : (x.size(dim) + padding - kernel) / stride + 1);
  }
  return sizes;
}

Tensor convolution(const Tensor& x, const Tensor& weight, const Optional& bias, IntArrayRef stride,
                   IntArrayRef padding, IntArrayRef dilation, bool transposed,
                   IntArrayRef output_padding, std::int64_t groups) {
  check_channels(x, weight, bias, transposed, groups);
  const MemoryFormat format = format_of(x, weight);
  const Tensor input = as_contiguous(x, format);
  Tensor out = in_format(
      output_sizes(x, weight, {stride, padding, dilation, output_padding, transposed, groups}), x,
      format);
  const Tensor kernel = as_contiguous(weight, format);
  return out;
}

Tensor gradient_for(const Tensor& x, const Tensor& gradient, const Tensor& other) {
  const MemoryFormat format = format_of(gradient, other);
  Tensor result = in_format(x.sizes(), x, format);
  const Tensor copies[] = {as_contiguous(other, format), as_contiguous(gradient, format)};
  return result;
}

Three convolution_backward(const Tensor& gradient, const Tensor& x, const Tensor& weight,
                           OptionalIntArrayRef, IntArrayRef, IntArrayRef, IntArrayRef, bool,
                           IntArrayRef, std::int64_t, std::array<bool, 3> wanted) {
  const MemoryFormat format = x.dim() == 3 ? MemoryFormat::Contiguous : x.suggest_memory_format();
  const Tensor in_same_format = as_contiguous(gradient, format);
  Tensor for_x = wanted[0] ? gradient_for(x, in_same_format, weight) : Tensor();
  Tensor for_weight = wanted[1] ? gradient_for(weight, in_same_format, x) : Tensor();
  Tensor for_bias = wanted[2] ? contiguous({gradient.size(1)}, gradient) : Tensor();
  return {for_x, for_weight, for_bias};
}

// ---- Unfold and fold ----

// The result starts with the input's size, and keeps that memory if it gets smaller.
// Source: aten/src/ATen/native/cuda/Im2Col.cu, im2col_cuda; Col2Im.cu, col2im_cuda.
Tensor resized_from(const Tensor& x, IntArrayRef sizes) {
  Tensor out = contiguous(x);
  out.resize_(sizes);
  return out;
}

Tensor im2col(const Tensor& x, IntArrayRef kernel, IntArrayRef dilation, IntArrayRef padding,
              IntArrayRef stride) {
  at::native::im2col_shape_check(x, Tensor(), each(kernel, 0), each(kernel, 1), each(dilation, 0),
                                 each(dilation, 1), each(padding, 0), each(padding, 1),
                                 each(stride, 0), each(stride, 1));
  std::int64_t blocks = 1;
  for (std::size_t i = 0; i < 2; ++i) {
    const std::int64_t size = x.size(static_cast<std::int64_t>(i) - 2);
    blocks *= (size + 2 * each(padding, i) - each(dilation, i) * (each(kernel, i) - 1) - 1) /
                  each(stride, i) +
              1;
  }
  const Tensor input = as_contiguous(x);
  const std::int64_t plane = x.size(-3) * each(kernel, 0) * each(kernel, 1);
  return x.dim() == 4 ? resized_from(x, {x.size(0), plane, blocks})
                      : resized_from(x, {plane, blocks});
}

Tensor col2im(const Tensor& x, IntArrayRef size, IntArrayRef kernel, IntArrayRef dilation,
              IntArrayRef padding, IntArrayRef stride) {
  at::native::col2im_shape_check(x, Tensor(), size[0], size[1], each(kernel, 0), each(kernel, 1),
                                 each(dilation, 0), each(dilation, 1), each(padding, 0),
                                 each(padding, 1), each(stride, 0), each(stride, 1));
  const std::int64_t planes = x.size(-2) / (each(kernel, 0) * each(kernel, 1));
  const Tensor input = as_contiguous(x);
  return x.dim() == 3 ? resized_from(x, {x.size(0), planes, size[0], size[1]})
                      : resized_from(x, {planes, size[0], size[1]});
}

// ---- By columns, without cuDNN: called by name alone ----

// One sample's columns are alive at a time.
// Source: aten/src/ATen/native/cuda/ConvolutionMM2d.cu, NaiveDilatedConvolution.cu,
// NaiveConvolutionTranspose3d.cu.
Tensor by_columns(const Tensor& x, const Tensor& weight, const Geometry& g, bool needed = true) {
  const bool one_sample = x.dim() < weight.dim();
  const Tensor batch = one_sample ? x.unsqueeze(0) : x;
  check_channels(batch, weight, {}, g.transposed, g.groups);
  const Tensor input = as_contiguous(batch), kernel = as_contiguous(weight);
  Tensor out = contiguous(output_sizes(batch, weight, g), x);
  const std::int64_t places = c10::multiply_integers((g.transposed ? batch : out).sizes().slice(2));
  Tensor columns;
  if (needed) columns = contiguous({weight.numel() / weight.size(0), places}, x);
  return one_sample ? out.squeeze(0) : out;
}

// A kernel of one point with stride one needs no columns.
bool needs_columns(IntArrayRef kernel, IntArrayRef stride, IntArrayRef padding) {
  const auto all = [](IntArrayRef values, std::int64_t is) {
    return std::all_of(values.begin(), values.end(),
                       [&](std::int64_t value) { return value == is; });
  };
  return !(all(kernel, 1) && all(stride, 1) && all(padding, 0));
}

constexpr std::int64_t kOnes[] = {1, 1, 1}, kZeros[] = {0, 0, 0};

Tensor slow_2d(const Tensor& x, const Tensor& weight, IntArrayRef kernel, const Optional&,
               IntArrayRef stride, IntArrayRef padding) {
  return by_columns(x, weight, {stride, padding, kOnes, kZeros, false, 1},
                    needs_columns(kernel, stride, padding));
}

Three slow_2d_backward(const Tensor& gradient, const Tensor& x, const Tensor& weight, IntArrayRef,
                       IntArrayRef, IntArrayRef, std::array<bool, 3> wanted) {
  Tensor for_x = wanted[0] ? contiguous(x) : Tensor();
  Tensor for_weight = wanted[1] ? contiguous(weight) : Tensor();
  Tensor for_bias = wanted[2] ? contiguous({weight.size(0)}, x) : Tensor();
  const Tensor in_order[] = {as_contiguous(gradient), as_contiguous(x), as_contiguous(weight)};
  const Tensor columns =
      contiguous({weight.numel() / weight.size(0), gradient.size(-2) * gradient.size(-1)}, x);
  return {for_x, for_weight, for_bias};
}

void add_by_columns(Table& table) {
  table.rule("_slow_conv2d_forward", slow_2d);
  table.rule("_slow_conv2d_backward.output_mask", slow_2d_backward);
  table.rule(
      "_slow_conv2d_backward.grad_input",
      [](const Tensor&, const Tensor& x, const Tensor& weight, IntArrayRef, IntArrayRef,
         IntArrayRef, const Tensor& for_x, const Tensor& for_weight, const Tensor& for_bias) {
        return Three(for_x.resize_(x.sizes()), for_weight.resize_(weight.sizes()),
                     for_bias.resize_({weight.size(0)}));
      });
  for (const char* name : {"slow_conv_dilated2d", "slow_conv_dilated3d"})
    table.rule(name, [](const Tensor& x, const Tensor& weight, IntArrayRef, const Optional&,
                        IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation) {
      return by_columns(x, weight, {stride, padding, dilation, kZeros, false, 1});
    });
  table.rule("slow_conv_transpose3d", [](const Tensor& x, const Tensor& weight, IntArrayRef,
                                         const Optional&, IntArrayRef stride, IntArrayRef padding,
                                         IntArrayRef output_padding, IntArrayRef dilation) {
    return by_columns(x, weight, {stride, padding, dilation, output_padding, true, 1});
  });
}

}  // namespace

void add_convolution(Table& table) {
  add_by_columns(table);
  table.rule("convolution", convolution);
  table.rule("convolution_backward", convolution_backward);
  table.rule("im2col", im2col);
  table.rule("col2im", col2im);
}

}  // namespace headroom::sim::rules
