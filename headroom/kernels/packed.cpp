#include "headroom/kernels/packed.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <string>

#include "headroom/base/error.h"
#include "headroom/kernels/detail/blocks.h"
#include "headroom/kernels/detail/calls.h"

namespace headroom::kernels {
namespace {

std::int64_t divided_up(std::int64_t count, std::int64_t by) {
  return (count + by - 1) / by;
}

// Numbers that a piece must be a multiple of.
std::int64_t unit_of(const Packed& packed) {
  return packed.format == Format::int8 ? packed.columns : kNf4Block;
}

std::int64_t count_of(const Packed& packed) {
  return packed.rows * packed.columns;
}

}  // namespace

std::vector<at::Tensor> Packed::tensors() const {
  std::vector<at::Tensor> all;
  for (const at::Tensor* tensor : {&codes, &scales, &nested_scales, &offset})
    if (tensor->defined()) all.push_back(*tensor);
  return all;
}

Packed make_packed(Format format, std::int64_t rows, std::int64_t columns, c10::Device device,
                   bool nested) {
  if (rows < 0 || columns < 0)
    throw UsageError("make_packed", "expected sizes of a matrix, received " + std::to_string(rows) +
                                        " x " + std::to_string(columns));
  const at::TensorOptions options = at::TensorOptions(device).requires_grad(false);
  const at::TensorOptions numbers = options.dtype(at::kFloat), bytes = options.dtype(at::kByte);
  Packed packed{.format = format, .rows = rows, .columns = columns};
  if (format == Format::int8) {
    packed.codes = at::empty({rows, columns}, options.dtype(at::kChar));
    packed.scales = at::empty({rows}, numbers);
    return packed;
  }
  const std::int64_t blocks = divided_up(rows * columns, kNf4Block);
  packed.codes = at::empty({divided_up(rows * columns, 2)}, bytes);
  packed.scales = at::empty({blocks}, nested ? bytes : numbers);
  if (!nested) return packed;
  packed.nested_scales = at::empty({divided_up(blocks, kNestedBlock)}, numbers);
  packed.offset = at::empty({}, numbers);
  return packed;
}

Packer::Packer(const Packed& into)
    : into_(into),
      scales_(into.is_nested() ? at::empty(into.scales.sizes(), into.nested_scales.options())
                               : into.scales) {}

void Packer::add(const at::Tensor& numbers) {
  const std::int64_t count = numbers.numel(), end = next_ + count;
  const bool is_last = end == count_of(into_);
  if (end > count_of(into_) || (!is_last && count % unit_of(into_) != 0))
    throw UsageError("Packer::add", "expected a multiple of " + std::to_string(unit_of(into_)) +
                                        " numbers of " + std::to_string(count_of(into_)) +
                                        ", received " + std::to_string(count) + " after " +
                                        std::to_string(next_));
  if (count == 0) return;
  const at::Tensor flat = numbers.detach().view({-1});
  if (into_.format == Format::int8)
    int8_encode_(flat, next_ / into_.columns, into_.codes, scales_);
  else
    nf4_encode_(flat, next_, into_.codes, scales_);
  next_ = end;
}

void Packer::finish() {
  if (next_ != count_of(into_))
    throw UsageError("Packer::finish", "expected " + std::to_string(count_of(into_)) +
                                           " numbers, received " + std::to_string(next_));
  if (!into_.is_nested() || next_ == 0) return;
  at::Tensor offset = into_.offset;
  at::mean_out(offset, scales_, at::OptionalIntArrayRef());
  nf4_nest_(scales_, offset, into_.scales, into_.nested_scales);
  scales_.reset();
}

void pack(const at::Tensor& weight, const Packed& into) {
  if (weight.dim() != 2 || weight.size(0) != into.rows || weight.size(1) != into.columns)
    throw UsageError("pack", "expected a matrix of " + std::to_string(into.rows) + " x " +
                                 std::to_string(into.columns) + ", received " +
                                 std::to_string(weight.dim()) + " dimensions, " +
                                 std::to_string(weight.numel()) + " numbers");
  Packer packer(into);
  const std::int64_t step = weight.is_contiguous() ? std::max<std::int64_t>(into.rows, 1) : 64;
  for (std::int64_t row = 0; row < into.rows; row += step)
    packer.add(weight.detach().narrow(0, row, std::min(step, into.rows - row)).contiguous());
  packer.finish();
}

void unpack(const Packed& from, std::int64_t row, std::int64_t column, const at::Tensor& tile) {
  if (tile.dim() != 2 || row < 0 || column < 0 || row + tile.size(0) > from.rows ||
      column + tile.size(1) > from.columns)
    throw UsageError("unpack", "expected a part of " + std::to_string(from.rows) + " x " +
                                   std::to_string(from.columns) + ", received a tile at (" +
                                   std::to_string(row) + ", " + std::to_string(column) + ")");
  if (from.format == Format::int8)
    int8_decode_(from.codes, from.scales, row, column, tile);
  else
    nf4_decode_(from.codes, from.scales, from.nested_scales, from.offset, from.columns, row, column,
                tile);
}

}  // namespace headroom::kernels
