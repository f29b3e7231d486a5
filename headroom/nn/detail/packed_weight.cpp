#include "headroom/nn/detail/packed_weight.h"

#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "headroom/base/error.h"

namespace headroom::nn::detail {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

// Numbers in a tile: 16 MiB of float. Smaller ones cost products time: of 512 rows with 4096 x 4096
// numbers on the CPU, a tile of 2^18 takes 1.27 times a float weight's time, one of 2^22 1.02
// times.
constexpr std::int64_t kTile = std::int64_t{1} << 22;

// How many rows or columns of the result are computed at a time, when each takes `length` numbers
// of the weight. Blocks of 64 numbers are not cut.
std::int64_t step_of(std::int64_t length, std::int64_t all) {
  const std::int64_t fitting = kTile / std::max<std::int64_t>(1, length) / 64 * 64;
  return std::min(all, std::max<std::int64_t>(64, fitting));
}

// What autograd keeps between forward and backward. Not a saved tensor: saved-tensor scopes do not
// see it.
struct Kept final : torch::CustomClassHolder {
  explicit Kept(std::shared_ptr<const PackedWeight> its) : weight(std::move(its)) {}
  const std::shared_ptr<const PackedWeight> weight;
};

void keep(AutogradContext* context, const std::shared_ptr<const PackedWeight>& weight,
          bool transposed) {
  context->saved_data["weight"] = c10::IValue::make_capsule(c10::make_intrusive<Kept>(weight));
  context->saved_data["transposed"] = transposed;
}

const PackedWeight& kept(AutogradContext* context) {
  return *c10::static_intrusive_pointer_cast<Kept>(context->saved_data["weight"].toCapsule())
              ->weight;
}

// A product computes the result by columns: with W^T these are rows of the weight, else columns of
// it. So the backward pass, which is the other product, adds up no rounded partial sums.
struct Side {
  Side(const PackedWeight& weight, bool transposed)
      : by_rows(transposed != weight.is_transposed()),
        in(transposed ? weight.columns() : weight.rows()),
        out(transposed ? weight.rows() : weight.columns()) {}

  [[nodiscard]] std::vector<std::int64_t> tile_sizes(std::int64_t step) const {
    return by_rows ? std::vector{step, in} : std::vector{in, step};
  }
  // The first `count` rows or columns of a tile, or of a stack of tiles.
  [[nodiscard]] Tensor part(const Tensor& tile, std::int64_t count) const {
    return tile.narrow(by_rows ? -2 : -1, 0, count);
  }
  void unpack(const kernels::Packed& from, std::int64_t matrix, std::int64_t at,
              const Tensor& tile) const {
    const std::int64_t first = matrix * (by_rows ? out : in);
    kernels::unpack(from, first + (by_rows ? at : 0), by_rows ? 0 : at, tile);
  }
  // [in, part of out]
  [[nodiscard]] Tensor factor(const Tensor& tile) const {
    return by_rows ? tile.transpose(-2, -1) : tile;
  }

  const bool by_rows;
  const std::int64_t in, out;
};

void multiply_in_tiles(const PackedWeight& weight, const Tensor& x, bool transposed,
                       const Tensor& bias, const Tensor& y) {
  const Side side(weight, transposed);
  const std::int64_t step = step_of(side.in, side.out);
  const Tensor scratch = at::empty(side.tile_sizes(step), x.options());
  for (std::int64_t at = 0; at < side.out; at += step) {
    const std::int64_t count = std::min(step, side.out - at);
    const Tensor tile = side.part(scratch, count);
    side.unpack(weight.packed(), 0, at, tile);
    Tensor part = y.narrow(1, at, count);
    if (bias.defined())
      at::addmm_out(part, bias.narrow(0, at, count), x, side.factor(tile));
    else
      at::mm_out(part, x, side.factor(tile));
  }
}

struct Product final : torch::autograd::Function<Product> {
  // LibTorch takes no undefined tensor here.
  static Tensor forward(AutogradContext* context, const Tensor& x,
                        const std::optional<Tensor>& bias,
                        const std::shared_ptr<const PackedWeight>& weight, bool transposed) {
    keep(context, weight, transposed);
    context->saved_data["has_bias"] = bias.has_value();
    std::vector<std::int64_t> sizes = x.sizes().vec();
    sizes.back() = Side(*weight, transposed).out;
    // Not a view: torch::nn::Linear adds its bias in place.
    const Tensor y = at::empty(sizes, x.options());
    multiply_in_tiles(*weight, x.reshape({-1, x.size(-1)}), transposed, bias.value_or(Tensor()),
                      y.view({-1, y.size(-1)}));
    return y;
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& gradients) {
    const Tensor& gradient = gradients[0];
    Tensor of_x, of_bias;
    if (context->needs_input_grad(0))
      of_x = kept(context).product(gradient, !context->saved_data["transposed"].toBool(), {});
    if (context->saved_data["has_bias"].toBool() && context->needs_input_grad(1))
      of_bias = gradient.reshape({-1, gradient.size(-1)}).sum(0);
    return {of_x, of_bias, {}, {}};
  }
};

// The same part of all matrices at a time: which rows of x belong to which matrix is known on the
// device alone, and need not be.
Tensor grouped_in_tiles(const PackedWeight& weight, const Tensor& x, bool transposed,
                        const Tensor& ends) {
  const Side side(weight, transposed);
  const std::int64_t all = weight.matrices(), step = step_of(side.in * all, side.out);
  std::vector<std::int64_t> sizes = side.tile_sizes(step);
  sizes.insert(sizes.begin(), all);
  const Tensor y = at::empty({x.size(0), side.out}, x.options());
  const Tensor scratch = at::empty(sizes, x.options());
  for (std::int64_t at = 0; at < side.out; at += step) {
    const std::int64_t count = std::min(step, side.out - at);
    const Tensor tiles = side.part(scratch, count);
    for (std::int64_t i = 0; i < all; ++i) side.unpack(weight.packed(), i, at, tiles[i]);
    y.narrow(1, at, count).copy_(at::_grouped_mm(x, side.factor(tiles), ends));
  }
  return y;
}

struct GroupedProduct final : torch::autograd::Function<GroupedProduct> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& ends,
                        const std::shared_ptr<const PackedWeight>& weight, bool transposed) {
    keep(context, weight, transposed);
    context->saved_data["ends"] = ends;
    return grouped_in_tiles(*weight, x, transposed, ends);
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& gradients) {
    const Tensor gradient = gradients[0].contiguous();
    return {kept(context).grouped_product(gradient, !context->saved_data["transposed"].toBool(),
                                          context->saved_data["ends"].toTensor()),
            {},
            {},
            {}};
  }
};

}  // namespace

PackedWeight::PackedWeight(kernels::Packed packed, std::vector<std::int64_t> sizes, bool transposed)
    : packed_(std::move(packed)), sizes_(std::move(sizes)), transposed_(transposed) {}

Tensor PackedWeight::product(const Tensor& x, bool transposed, const Tensor& bias) const {
  const std::int64_t in = transposed ? columns() : rows();
  TORCH_CHECK(x.size(-1) == in, "mat1 and mat2 shapes cannot be multiplied: ", x.sizes(),
              " times a quantised weight of ", in, " inputs");
  const auto its_bias = bias.defined() ? std::optional(bias) : std::nullopt;
  return Product::apply(x, its_bias, shared_from_this(), transposed);
}

Tensor PackedWeight::grouped_product(const Tensor& x, bool transposed, const Tensor& ends) const {
  return GroupedProduct::apply(x, ends, shared_from_this(), transposed);
}

Tensor PackedWeight::whole(at::ScalarType type) const {
  const Tensor all =
      at::empty({packed_.rows, packed_.columns}, at::TensorOptions(packed_.device()).dtype(type));
  kernels::unpack(packed_, 0, 0, all);
  return transposed_ ? all.t() : all.view(sizes_);
}

void PackedWeight::assign(const Tensor& values) {
  const at::NoGradGuard no_grad;
  const auto from = std::dynamic_pointer_cast<const PackedWeight>(libtorch::store_of(values));
  const std::vector<Tensor> own = tensors();
  if (from && from->packed_.format == packed_.format && from->tensors().size() == own.size() &&
      from->transposed_ == transposed_) {
    const std::vector<Tensor> theirs = from->tensors();
    for (std::size_t i = 0; i < own.size(); ++i) own[i].copy_(theirs[i]);
    return;
  }
  if (from && from->transposed_ == transposed_ && from->packed_.device() == packed_.device())
    return repack(from->packed_, packed_);
  const Tensor plain = (from ? from->whole(at::kFloat) : values).to(packed_.device());
  kernels::pack(transposed_ ? plain.t() : plain.reshape({packed_.rows, packed_.columns}), packed_);
}

std::shared_ptr<libtorch::Store> PackedWeight::copy(c10::Device device) const {
  const at::NoGradGuard no_grad;
  kernels::Packed other = packed_;
  for (Tensor* const tensor : {&other.codes, &other.scales, &other.nested_scales, &other.offset})
    if (tensor->defined()) *tensor = tensor->to(device, tensor->scalar_type(), false, true);
  return std::make_shared<PackedWeight>(std::move(other), sizes_, transposed_);
}

void repack(const kernels::Packed& from, const kernels::Packed& into) {
  const at::NoGradGuard no_grad;
  const std::int64_t step = step_of(from.columns, from.rows);
  const Tensor tile =
      at::empty({step, from.columns}, at::TensorOptions(from.device()).dtype(at::kFloat));
  kernels::Packer packer(into);
  for (std::int64_t row = 0; row < from.rows; row += step) {
    const Tensor rows = tile.narrow(0, 0, std::min(step, from.rows - row));
    kernels::unpack(from, row, 0, rows);
    packer.add(rows.reshape({-1}));
  }
  packer.finish();
}

}  // namespace headroom::nn::detail
