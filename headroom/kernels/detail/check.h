// What an operator's arguments must be, said in LibTorch's own words. Meta kernels check the same,
// so that a wrong call also fails on a shape-only card.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "headroom/kernels/detail/number.h"

namespace headroom::kernels {

// The type of numbers. Throws c10::Error for one that the kernels lack.
[[nodiscard]] Number number_of(const at::Tensor& numbers);

// Each throws c10::Error.
void check_nf4_encode(const at::Tensor& numbers, std::int64_t first, const at::Tensor& codes,
                      const at::Tensor& scales);
void check_nf4_nest(const at::Tensor& scales, const at::Tensor& offset, const at::Tensor& codes,
                    const at::Tensor& nested_scales);
void check_nf4_decode(const at::Tensor& codes, const at::Tensor& scales,
                      const std::optional<at::Tensor>& nested_scales,
                      const std::optional<at::Tensor>& offset, std::int64_t columns,
                      std::int64_t row, std::int64_t column, const at::Tensor& tile);
void check_int8_encode(const at::Tensor& numbers, std::int64_t row, const at::Tensor& codes,
                       const at::Tensor& scales);
void check_int8_decode(const at::Tensor& codes, const at::Tensor& scales, std::int64_t row,
                       std::int64_t column, const at::Tensor& tile);

}  // namespace headroom::kernels
