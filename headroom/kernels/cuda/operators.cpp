// Registers the kernels for CUDA of the operators in headroom/kernels/operators.cpp. Part of
// libheadroom_cuda.so: they are there once cuda_functions() has loaded it.
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include "headroom/kernels/cuda/packed.h"
#include "headroom/kernels/detail/blocks.h"
#include "headroom/kernels/detail/check.h"

namespace headroom::kernels::cuda {
namespace {

using at::Tensor;
using MaybeTensor = std::optional<Tensor>;

void check_launch(int error) {
  TORCH_CHECK(error == 0, "headroom: a kernel could not be launched: ", words_of(error));
}

void check_same_device(const Tensor& one, std::initializer_list<const Tensor*> others) {
  for (const Tensor* other : others)
    TORCH_CHECK(other->device() == one.device(), "headroom: expected all tensors on ", one.device(),
                ", received one on ", other->device());
}

CUstream_st* stream_now() {
  return c10::cuda::getCurrentCUDAStream().stream();
}

// A tile whose rows follow one another, as the matrix's do, is one long row.
Tile tile_of(const Tensor& tile, bool as_one_row) {
  const Number type = number_of(tile);
  void* const numbers = tile.mutable_data_ptr();
  if (as_one_row && tile.is_contiguous()) return {type, numbers, 1, tile.numel(), tile.numel()};
  return {type, numbers, tile.size(0), tile.size(1), tile.stride(0)};
}

void nf4_encode_cuda(const Tensor& numbers, std::int64_t first, const Tensor& codes,
                     const Tensor& scales) {
  check_nf4_encode(numbers, first, codes, scales);
  check_same_device(numbers, {&codes, &scales});
  if (numbers.numel() == 0) return;
  const c10::cuda::CUDAGuard guard(numbers.device());
  check_launch(nf4_encode(number_of(numbers), numbers.const_data_ptr(), numbers.numel(),
                          codes.mutable_data_ptr<std::uint8_t>() + first / 2,
                          scales.mutable_data_ptr<float>() + first / kNf4Block, stream_now()));
}

void nf4_nest_cuda(const Tensor& scales, const Tensor& offset, const Tensor& codes,
                   const Tensor& nested_scales) {
  check_nf4_nest(scales, offset, codes, nested_scales);
  check_same_device(scales, {&offset, &codes, &nested_scales});
  if (scales.numel() == 0) return;
  const c10::cuda::CUDAGuard guard(scales.device());
  check_launch(nest(scales.const_data_ptr<float>(), offset.const_data_ptr<float>(), scales.numel(),
                    codes.mutable_data_ptr<std::uint8_t>(), nested_scales.mutable_data_ptr<float>(),
                    stream_now()));
}

Nf4Memory memory_of(const Tensor& codes, const Tensor& scales, const MaybeTensor& nested_scales,
                    const MaybeTensor& offset) {
  if (!nested_scales)
    return {codes.const_data_ptr<std::uint8_t>(), scales.const_data_ptr<float>(), nullptr, nullptr,
            nullptr};
  check_same_device(codes, {&*nested_scales, &*offset});
  return {codes.const_data_ptr<std::uint8_t>(), nullptr, scales.const_data_ptr<std::uint8_t>(),
          nested_scales->const_data_ptr<float>(), offset->const_data_ptr<float>()};
}

void nf4_decode_cuda(const Tensor& codes, const Tensor& scales, const MaybeTensor& nested_scales,
                     const MaybeTensor& offset, std::int64_t columns, std::int64_t row,
                     std::int64_t column, const Tensor& tile) {
  check_nf4_decode(codes, scales, nested_scales, offset, columns, row, column, tile);
  check_same_device(tile, {&codes, &scales});
  if (tile.numel() == 0) return;
  const c10::cuda::CUDAGuard guard(tile.device());
  check_launch(nf4_decode(memory_of(codes, scales, nested_scales, offset), row * columns + column,
                          columns, tile_of(tile, tile.size(1) == columns), stream_now()));
}

void int8_encode_cuda(const Tensor& numbers, std::int64_t row, const Tensor& codes,
                      const Tensor& scales) {
  check_int8_encode(numbers, row, codes, scales);
  check_same_device(numbers, {&codes, &scales});
  if (numbers.numel() == 0) return;
  const c10::cuda::CUDAGuard guard(numbers.device());
  const std::int64_t columns = codes.size(1);
  check_launch(int8_encode(number_of(numbers), numbers.const_data_ptr(), numbers.numel() / columns,
                           columns, codes.mutable_data_ptr<std::int8_t>() + row * columns,
                           scales.mutable_data_ptr<float>() + row, stream_now()));
}

void int8_decode_cuda(const Tensor& codes, const Tensor& scales, std::int64_t row,
                      std::int64_t column, const Tensor& tile) {
  check_int8_decode(codes, scales, row, column, tile);
  check_same_device(tile, {&codes, &scales});
  if (tile.numel() == 0) return;
  const c10::cuda::CUDAGuard guard(tile.device());
  check_launch(int8_decode(codes.const_data_ptr<std::int8_t>() + row * codes.size(1) + column,
                           scales.const_data_ptr<float>() + row, codes.size(1),
                           tile_of(tile, false), stream_now()));
}

}  // namespace

TORCH_LIBRARY_IMPL(headroom, CUDA, m) {
  m.impl("nf4_encode_", &nf4_encode_cuda);
  m.impl("nf4_nest_", &nf4_nest_cuda);
  m.impl("nf4_decode_", &nf4_decode_cuda);
  m.impl("int8_encode_", &int8_encode_cuda);
  m.impl("int8_decode_", &int8_decode_cuda);
}

}  // namespace headroom::kernels::cuda
