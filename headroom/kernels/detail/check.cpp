#include "headroom/kernels/detail/check.h"

#include "headroom/kernels/detail/blocks.h"

namespace headroom::kernels {
namespace {

using at::Tensor;

void check_memory(const Tensor& tensor, at::ScalarType type, std::int64_t count, const char* name) {
  TORCH_CHECK(tensor.scalar_type() == type && tensor.is_contiguous(), "headroom: expected ", name,
              " to be contiguous and of type ", type, ", received ", tensor.scalar_type());
  TORCH_CHECK(tensor.numel() >= count, "headroom: expected at least ", count, " ", name,
              ", received ", tensor.numel());
}

void check_numbers(const Tensor& numbers) {
  static_cast<void>(number_of(numbers));
  TORCH_CHECK(numbers.dim() == 1 && numbers.is_contiguous(),
              "headroom: expected flat, contiguous numbers, received ", numbers.dim(),
              " dimensions");
}

void check_tile(const Tensor& tile, std::int64_t row, std::int64_t column) {
  static_cast<void>(number_of(tile));
  TORCH_CHECK(tile.dim() == 2 && (tile.size(1) < 2 || tile.stride(1) == 1),
              "headroom: expected a tile whose columns are adjacent, received strides ",
              tile.strides());
  TORCH_CHECK(row >= 0 && column >= 0, "headroom: expected a place in the matrix, received (", row,
              ", ", column, ")");
}

std::int64_t blocks_of(std::int64_t count) {
  return (count + kNf4Block - 1) / kNf4Block;
}

std::int64_t nested_blocks_of(std::int64_t blocks) {
  return (blocks + kNestedBlock - 1) / kNestedBlock;
}

}  // namespace

Number number_of(const Tensor& numbers) {
  switch (numbers.scalar_type()) {
    case at::kFloat:
      return Number::float32;
    case at::kDouble:
      return Number::float64;
    case at::kBFloat16:
      return Number::bf16;
    case at::kHalf:
      return Number::half;
    default:
      break;
  }
  TORCH_CHECK(false, "headroom: expected float, double, bfloat16 or half, received ",
              numbers.scalar_type());
}

void check_nf4_encode(const Tensor& numbers, std::int64_t first, const Tensor& codes,
                      const Tensor& scales) {
  check_numbers(numbers);
  TORCH_CHECK(first >= 0 && first % kNf4Block == 0,
              "headroom: expected a block's first number, received ", first);
  const std::int64_t end = first + numbers.numel();
  check_memory(codes, at::kByte, (end + 1) / 2, "codes");
  check_memory(scales, at::kFloat, blocks_of(end), "scales");
}

void check_nf4_nest(const Tensor& scales, const Tensor& offset, const Tensor& codes,
                    const Tensor& nested_scales) {
  check_memory(scales, at::kFloat, 0, "scales");
  check_memory(offset, at::kFloat, 1, "offset");
  check_memory(codes, at::kByte, scales.numel(), "codes");
  check_memory(nested_scales, at::kFloat, nested_blocks_of(scales.numel()), "nested scales");
}

void check_nf4_decode(const Tensor& codes, const Tensor& scales,
                      const std::optional<Tensor>& nested_scales,
                      const std::optional<Tensor>& offset, std::int64_t columns, std::int64_t row,
                      std::int64_t column, const Tensor& tile) {
  check_tile(tile, row, column);
  TORCH_CHECK(column + tile.size(1) <= columns, "headroom: expected a tile of ", columns,
              " columns, received one to column ", column + tile.size(1));
  if (tile.numel() == 0) return;
  const std::int64_t last = (row + tile.size(0) - 1) * columns + column + tile.size(1);
  const std::int64_t blocks = blocks_of(last);
  check_memory(codes, at::kByte, (last + 1) / 2, "codes");
  TORCH_CHECK(nested_scales.has_value() == offset.has_value(),
              "headroom: expected nested scales with an offset");
  check_memory(scales, nested_scales ? at::kByte : at::kFloat, blocks, "scales");
  if (!nested_scales) return;
  check_memory(*nested_scales, at::kFloat, nested_blocks_of(blocks), "nested scales");
  check_memory(*offset, at::kFloat, 1, "offset");
}

void check_int8_encode(const Tensor& numbers, std::int64_t row, const Tensor& codes,
                       const Tensor& scales) {
  check_numbers(numbers);
  TORCH_CHECK(
      codes.dim() == 2 && codes.size(1) > 0 && numbers.numel() % codes.size(1) == 0 && row >= 0,
      "headroom: expected numbers of whole rows, received ", numbers.numel());
  const std::int64_t end = row + numbers.numel() / codes.size(1);
  check_memory(codes, at::kChar, end * codes.size(1), "codes");
  check_memory(scales, at::kFloat, end, "scales");
}

void check_int8_decode(const Tensor& codes, const Tensor& scales, std::int64_t row,
                       std::int64_t column, const Tensor& tile) {
  check_tile(tile, row, column);
  TORCH_CHECK(codes.dim() == 2 && column + tile.size(1) <= codes.size(1) &&
                  row + tile.size(0) <= codes.size(0),
              "headroom: expected a tile in a matrix of ", codes.sizes(), ", received ",
              tile.sizes(), " at (", row, ", ", column, ")");
  check_memory(codes, at::kChar, 0, "codes");
  check_memory(scales, at::kFloat, row + tile.size(0), "scales");
}

}  // namespace headroom::kernels
