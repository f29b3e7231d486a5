// The room's operators, as C++ functions that go through LibTorch's dispatcher.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace headroom::kernels {

// Loads the kernels for CUDA, if this is a card's tensor and they are not there yet. Each function
// below calls it. Code that calls an operator of this room by LibTorch's dispatcher calls it first.
void load_kernels_for(const at::Tensor& tensor);

// Raises the version of each tensor that an operator wrote: autograd, which these operators pass
// by, does not.
void count_changes(at::TensorList written);

// Flat numbers, contiguous, of which the first is number `first` of the matrix, a multiple of 64.
// `scales` are float.
void nf4_encode_(const at::Tensor& numbers, std::int64_t first, const at::Tensor& codes,
                 const at::Tensor& scales);
// Quantises scales, less the offset.
void nf4_nest_(const at::Tensor& scales, const at::Tensor& offset, const at::Tensor& codes,
               const at::Tensor& nested_scales);
// `columns` of the whole matrix. Undefined nested_scales and offset: `scales` are float.
void nf4_decode_(const at::Tensor& codes, const at::Tensor& scales, const at::Tensor& nested_scales,
                 const at::Tensor& offset, std::int64_t columns, std::int64_t row,
                 std::int64_t column, const at::Tensor& tile);
// Flat numbers of whole rows, from `row` on.
void int8_encode_(const at::Tensor& numbers, std::int64_t row, const at::Tensor& codes,
                  const at::Tensor& scales);
void int8_decode_(const at::Tensor& codes, const at::Tensor& scales, std::int64_t row,
                  std::int64_t column, const at::Tensor& tile);

}  // namespace headroom::kernels
