// Matrices for the tests of this folder.
#pragma once

#include <ATen/ATen.h>

#include <string>

#include "headroom/kernels/packed.h"

namespace headroom::kernels {

// A type by its number (of float, double, bfloat16, half) for tests with parameters.
inline constexpr at::ScalarType kTypes[] = {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf};

// Numbers of very different sizes, with a row and a block of zeros.
inline at::Tensor some_matrix(std::int64_t rows, std::int64_t columns,
                              at::ScalarType type = at::kFloat) {
  at::Tensor numbers = at::randn({rows, columns}) * at::randn({rows, 1}).exp() * 0.02;
  if (rows > 4) numbers[2].zero_();
  if (numbers.numel() > 200) numbers.view({-1}).narrow(0, 64, 64).zero_();
  return numbers.to(type);
}

inline Packed packed_from(const at::Tensor& weight, Format format, bool nested = true) {
  Packed packed = make_packed(format, weight.size(0), weight.size(1), weight.device(), nested);
  pack(weight, packed);
  return packed;
}

inline at::Tensor unpacked(const Packed& packed, at::ScalarType type = at::kFloat) {
  at::Tensor all = at::empty({packed.rows, packed.columns}, packed.codes.options().dtype(type));
  unpack(packed, 0, 0, all);
  return all;
}

// To the bit; NaN is equal to NaN.
inline bool same_bits(const at::Tensor& one, const at::Tensor& other) {
  return one.sizes() == other.sizes() && one.scalar_type() == other.scalar_type() &&
         at::equal(one.contiguous().flatten().view(at::kByte),
                   other.contiguous().flatten().view(at::kByte));
}

inline bool same_bits(const Packed& one, const Packed& other) {
  const auto ours = one.tensors(), theirs = other.tensors();
  bool same = ours.size() == theirs.size();
  for (std::size_t i = 0; same && i < ours.size(); ++i) same = same_bits(ours[i], theirs[i]);
  return same;
}

inline std::string name_of(Format format, bool nested) {
  return format == Format::int8 ? "int8" : nested ? "nf4 nested" : "nf4";
}

}  // namespace headroom::kernels
