// Padding, and sampling from a grid. CUDA's results are contiguous, whatever the input's layout.
// Source: aten/src/ATen/native/cuda/ReflectionPad.cu, ReplicationPadding.cu, GridSampler.cpp.
#include "headroom/sim/rules/families.h"
#include "headroom/sim/rules/results.h"

namespace headroom::sim::rules {
namespace {

// An image or a batch of them; only the batch may be empty.
void check_images(const Tensor& x) {
  const std::int64_t batch = x.dim() == 4 ? 1 : 0;
  bool valid = x.dim() == 3 || x.dim() == 4;
  for (std::int64_t dim = batch; dim < x.dim(); ++dim) valid = valid && x.size(dim) != 0;
  TORCH_CHECK(valid,
              "Expected 3D or 4D (batch mode) tensor with possibly 0 batch size and other "
              "non-zero dimensions for input, but got: ",
              x.sizes());
}

Tensor reflection_2d(const Tensor& x, IntArrayRef padding) {
  TORCH_CHECK(padding.size() == 4, "padding size is expected to be 4, but got: ", padding.size());
  check_images(x);
  TORCH_CHECK(std::max(padding[0], padding[1]) < x.size(-1) &&
                  std::max(padding[2], padding[3]) < x.size(-2),
              "Argument #4: Padding size should be less than the corresponding input dimension, ",
              "but got: padding ", padding, " of input ", x.sizes());
  const Tensor input = as_contiguous(x);
  return contiguous(with_last(x.sizes(), {x.size(-2) + padding[2] + padding[3],
                                          x.size(-1) + padding[0] + padding[1]}),
                    x);
}

Tensor padding_backward(const Tensor& gradient, const Tensor& x, IntArrayRef) {
  Tensor result = contiguous(x);
  const Tensor in_order = as_contiguous(gradient);
  return result;
}

Tensor grid_sampler(const Tensor& x, const Tensor& grid, std::int64_t, std::int64_t, bool) {
  Sizes sizes{x.size(0), x.size(1)};
  for (std::int64_t dim = 1; dim + 1 < grid.dim(); ++dim) sizes.push_back(grid.size(dim));
  return contiguous(sizes, x);
}

Two grid_sampler_backward(const Tensor&, const Tensor& x, const Tensor& grid, std::int64_t,
                          std::int64_t, bool, std::array<bool, 2> wanted) {
  Tensor for_x = wanted[0] ? contiguous(x) : Tensor();
  Tensor for_grid = contiguous(grid);  // made even if it is not wanted
  return {for_x, for_grid};
}

}  // namespace

void add_padding(Table& table) {
  table.rule("reflection_pad2d", reflection_2d);
  for (const char* name :
       {"reflection_pad2d_backward", "replication_pad2d_backward", "replication_pad3d_backward"})
    table.rule(name, padding_backward);
  table.contiguous_as(0, {"channel_shuffle"});
  for (const char* name : {"grid_sampler_2d", "grid_sampler_3d"}) table.rule(name, grid_sampler);
  for (const char* name : {"grid_sampler_2d_backward", "grid_sampler_3d_backward"})
    table.rule(name, grid_sampler_backward);
}

}  // namespace headroom::sim::rules
