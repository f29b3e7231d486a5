// Defines the room's operators of packed matrices, with their kernels for the CPU and for Meta
// tensors. Those for CUDA are registered by libheadroom_cuda.so (headroom/cuda/loaded).
//
// A simulated card runs the Meta kernel, and if it computes, the CPU's kernel on aliases: so an
// operator here asks for no memory and writes into tensors that it is given.
#include <torch/library.h>

#include <algorithm>

#include "headroom/cuda/load.h"
#include "headroom/kernels/detail/blocks.h"
#include "headroom/kernels/detail/calls.h"
#include "headroom/kernels/detail/check.h"
#include "headroom/kernels/detail/packed_cpu.h"
#include "headroom/kernels/detail/threads.h"

namespace headroom::kernels {
namespace {

using at::Tensor;
using MaybeTensor = std::optional<Tensor>;

constexpr std::int64_t kThreadNumbers = 1 << 15;  // a thread's least share

// ---- CPU ----

void nf4_encode_cpu(const Tensor& numbers, std::int64_t first, const Tensor& codes,
                    const Tensor& scales) {
  check_nf4_encode(numbers, first, codes, scales);
  const PackedCpu& cpu = packed_cpu();
  const Number type = number_of(numbers);
  const auto* const from = static_cast<const char*>(numbers.const_data_ptr());
  auto* const to = codes.mutable_data_ptr<std::uint8_t>() + first / 2;
  auto* const its_scales = scales.mutable_data_ptr<float>() + first / kNf4Block;
  const std::int64_t count = numbers.numel(), blocks = (count + kNf4Block - 1) / kNf4Block;
  detail::share_out(blocks, kThreadNumbers / kNf4Block, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t at = begin * kNf4Block;
    cpu.nf4_encode(type, from + at * numbers.element_size(), std::min(end * kNf4Block, count) - at,
                   to + at / 2, its_scales + begin);
  });
}

void nf4_nest_cpu(const Tensor& scales, const Tensor& offset, const Tensor& codes,
                  const Tensor& nested_scales) {
  check_nf4_nest(scales, offset, codes, nested_scales);
  packed_cpu().nest(scales.const_data_ptr<float>(), *offset.const_data_ptr<float>(), scales.numel(),
                    codes.mutable_data_ptr<std::uint8_t>(),
                    nested_scales.mutable_data_ptr<float>());
}

// Calls `work(first, count, where)` for runs of the tile that are adjacent in the matrix and
// in memory. Rows that follow one another in both are cut at blocks instead.
template <typename Work>
void for_runs(const Tensor& tile, std::int64_t columns, std::int64_t first, const Work& work) {
  auto* const to = static_cast<char*>(tile.mutable_data_ptr());
  const std::int64_t width = tile.size(1), size = tile.element_size();
  if (width == columns && tile.is_contiguous()) {
    const std::int64_t last = first + tile.numel(), begin_of_blocks = first / kNf4Block;
    const std::int64_t blocks = (last + kNf4Block - 1) / kNf4Block - begin_of_blocks;
    detail::share_out(blocks, kThreadNumbers / kNf4Block, [&](std::int64_t one, std::int64_t end) {
      const std::int64_t at = std::max(first, (begin_of_blocks + one) * kNf4Block);
      work(at, std::min(last, (begin_of_blocks + end) * kNf4Block) - at, to + (at - first) * size);
    });
    return;
  }
  const std::int64_t rows = std::max<std::int64_t>(1, kThreadNumbers / width);
  detail::share_out(tile.size(0), rows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row)
      work(first + row * columns, width, to + row * tile.stride(0) * size);
  });
}

Nf4Memory memory_of(const Tensor& codes, const Tensor& scales, const MaybeTensor& nested_scales,
                    const MaybeTensor& offset) {
  if (!nested_scales)
    return {codes.const_data_ptr<std::uint8_t>(), scales.const_data_ptr<float>(), nullptr, nullptr,
            nullptr};
  return {codes.const_data_ptr<std::uint8_t>(), nullptr, scales.const_data_ptr<std::uint8_t>(),
          nested_scales->const_data_ptr<float>(), offset->const_data_ptr<float>()};
}

void nf4_decode_cpu(const Tensor& codes, const Tensor& scales, const MaybeTensor& nested_scales,
                    const MaybeTensor& offset, std::int64_t columns, std::int64_t row,
                    std::int64_t column, const Tensor& tile) {
  check_nf4_decode(codes, scales, nested_scales, offset, columns, row, column, tile);
  if (tile.numel() == 0) return;
  const PackedCpu& cpu = packed_cpu();
  const Nf4Memory from = memory_of(codes, scales, nested_scales, offset);
  const Number type = number_of(tile);
  for_runs(tile, columns, row * columns + column,
           [&](std::int64_t first, std::int64_t count, void* numbers) {
             cpu.nf4_decode(from, first, count, type, numbers);
           });
}

void int8_encode_cpu(const Tensor& numbers, std::int64_t row, const Tensor& codes,
                     const Tensor& scales) {
  check_int8_encode(numbers, row, codes, scales);
  const PackedCpu& cpu = packed_cpu();
  const Number type = number_of(numbers);
  const std::int64_t columns = codes.size(1), size = numbers.element_size();
  const auto* const from = static_cast<const char*>(numbers.const_data_ptr());
  auto* const to = codes.mutable_data_ptr<std::int8_t>() + row * columns;
  auto* const its_scales = scales.mutable_data_ptr<float>() + row;
  detail::share_out(numbers.numel() / columns, std::max<std::int64_t>(1, kThreadNumbers / columns),
                    [&](std::int64_t begin, std::int64_t end) {
                      for (std::int64_t i = begin; i < end; ++i)
                        its_scales[i] = cpu.int8_encode(type, from + i * columns * size, columns,
                                                        to + i * columns);
                    });
}

void int8_decode_cpu(const Tensor& codes, const Tensor& scales, std::int64_t row,
                     std::int64_t column, const Tensor& tile) {
  check_int8_decode(codes, scales, row, column, tile);
  if (tile.numel() == 0) return;
  const PackedCpu& cpu = packed_cpu();
  const Number type = number_of(tile);
  const std::int64_t columns = codes.size(1), width = tile.size(1);
  const auto* const from = codes.const_data_ptr<std::int8_t>() + row * columns + column;
  const auto* const its_scales = scales.const_data_ptr<float>() + row;
  auto* const to = static_cast<char*>(tile.mutable_data_ptr());
  detail::share_out(tile.size(0), std::max<std::int64_t>(1, kThreadNumbers / width),
                    [&](std::int64_t begin, std::int64_t end) {
                      for (std::int64_t i = begin; i < end; ++i)
                        cpu.int8_decode(from + i * columns, its_scales[i], width, type,
                                        to + i * tile.stride(0) * tile.element_size());
                    });
}

// ---- The dispatcher's side ----

template <typename Function>
auto operator_of(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Function>();
}

MaybeTensor maybe(const Tensor& tensor) {
  return tensor.defined() ? MaybeTensor(tensor) : std::nullopt;
}

using Encode = void(const Tensor&, std::int64_t, const Tensor&, const Tensor&);
using Nest = void(const Tensor&, const Tensor&, const Tensor&, const Tensor&);
using Nf4Decode = void(const Tensor&, const Tensor&, const MaybeTensor&, const MaybeTensor&,
                       std::int64_t, std::int64_t, std::int64_t, const Tensor&);
using Int8Decode = void(const Tensor&, const Tensor&, std::int64_t, std::int64_t, const Tensor&);

}  // namespace

void load_kernels_for(const Tensor& tensor) {
  if (tensor.is_cuda()) static_cast<void>(cuda_functions());
}

void count_changes(at::TensorList written) {
  for (const Tensor& tensor : written)
    if (tensor.defined() && !tensor.is_inference()) tensor.unsafeGetTensorImpl()->bump_version();
}

void nf4_encode_(const Tensor& numbers, std::int64_t first, const Tensor& codes,
                 const Tensor& scales) {
  static const auto call = operator_of<Encode>("headroom::nf4_encode_");
  load_kernels_for(numbers);
  call.call(numbers, first, codes, scales);
  count_changes({codes, scales});
}

void nf4_nest_(const Tensor& scales, const Tensor& offset, const Tensor& codes,
               const Tensor& nested_scales) {
  static const auto call = operator_of<Nest>("headroom::nf4_nest_");
  load_kernels_for(scales);
  call.call(scales, offset, codes, nested_scales);
  count_changes({codes, nested_scales});
}

void nf4_decode_(const Tensor& codes, const Tensor& scales, const Tensor& nested_scales,
                 const Tensor& offset, std::int64_t columns, std::int64_t row, std::int64_t column,
                 const Tensor& tile) {
  static const auto call = operator_of<Nf4Decode>("headroom::nf4_decode_");
  load_kernels_for(tile);
  call.call(codes, scales, maybe(nested_scales), maybe(offset), columns, row, column, tile);
  count_changes(tile);
}

void int8_encode_(const Tensor& numbers, std::int64_t row, const Tensor& codes,
                  const Tensor& scales) {
  static const auto call = operator_of<Encode>("headroom::int8_encode_");
  load_kernels_for(numbers);
  call.call(numbers, row, codes, scales);
  count_changes({codes, scales});
}

void int8_decode_(const Tensor& codes, const Tensor& scales, std::int64_t row, std::int64_t column,
                  const Tensor& tile) {
  static const auto call = operator_of<Int8Decode>("headroom::int8_decode_");
  load_kernels_for(tile);
  call.call(codes, scales, row, column, tile);
  count_changes(tile);
}

TORCH_LIBRARY_FRAGMENT(headroom, m) {
  m.def("nf4_encode_(Tensor numbers, int first, Tensor(a!) codes, Tensor(b!) scales) -> ()");
  m.def(
      "nf4_nest_(Tensor scales, Tensor offset, Tensor(a!) codes, Tensor(b!) nested_scales) -> ()");
  m.def(
      "nf4_decode_(Tensor codes, Tensor scales, Tensor? nested_scales, Tensor? offset, int "
      "columns, "
      "int row, int column, Tensor(a!) tile) -> ()");
  m.def("int8_encode_(Tensor numbers, int row, Tensor(a!) codes, Tensor(b!) scales) -> ()");
  m.def("int8_decode_(Tensor codes, Tensor scales, int row, int column, Tensor(a!) tile) -> ()");
}

TORCH_LIBRARY_IMPL(headroom, CPU, m) {
  m.impl("nf4_encode_", &nf4_encode_cpu);
  m.impl("nf4_nest_", &nf4_nest_cpu);
  m.impl("nf4_decode_", &nf4_decode_cpu);
  m.impl("int8_encode_", &int8_encode_cpu);
  m.impl("int8_decode_", &int8_decode_cpu);
}

TORCH_LIBRARY_IMPL(headroom, Meta, m) {
  m.impl("nf4_encode_", &check_nf4_encode);
  m.impl("nf4_nest_", &check_nf4_nest);
  m.impl("nf4_decode_", &check_nf4_decode);
  m.impl("int8_encode_", &check_int8_encode);
  m.impl("int8_decode_", &check_int8_decode);
}

// They have no derivative, and may be called where others have one.
TORCH_LIBRARY_IMPL(headroom, Autograd, m) {
  for (const char* name :
       {"nf4_encode_", "nf4_nest_", "nf4_decode_", "int8_encode_", "int8_decode_"})
    m.impl(name, torch::CppFunction::makeFallthrough());
}

}  // namespace headroom::kernels
