// Quantised weights as tensors of a file, and parts of them: stacked experts are one packed matrix
// in memory and a matrix each in files.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "headroom/kernels/packed.h"
#include "headroom/weights/named_tensors.h"

namespace headroom::weights::detail {

// The numbers that codes stand for, in float on the CPU: NF4's 16, and the 256 of its 8-bit scales.
[[nodiscard]] const at::Tensor& nf4_numbers();
[[nodiscard]] const at::Tensor& nested_numbers();

// The same matrix with scales in float, as they are computed from 8-bit ones.
[[nodiscard]] kernels::Packed with_float_scales(const kernels::Packed& packed);

// Whether these rows can be cut out: blocks of NF4 are not cut; with 8-bit scales, neither are
// their blocks.
[[nodiscard]] bool can_cut(const kernels::Packed& packed, std::int64_t first, std::int64_t rows);
// These rows, in the same memory.
[[nodiscard]] kernels::Packed cut(const kernels::Packed& packed, std::int64_t first,
                                  std::int64_t rows);
// Matrices one below the other. 8-bit scales stay if their blocks and offsets allow it, and become
// floats otherwise.
[[nodiscard]] kernels::Packed joined(const std::vector<kernels::Packed>& parts);

// The type's name in Python.
[[nodiscard]] const char* name_of(at::ScalarType type);

// Adds a weight under bitsandbytes' names. `shape` and `type` are those that the weight seems to
// have; `shape` is empty for that of the packed matrix.
void add_packed(NamedTensors& to, const std::string& name, const kernels::Packed& packed,
                at::ScalarType type, at::IntArrayRef shape = {});

// Adds a parameter: its packed form if it is quantised, or else itself.
void add_parameter(NamedTensors& to, const std::string& name, const at::Tensor& parameter);

}  // namespace headroom::weights::detail
