// Copies bytes of a file into a tensor and back, on any device, in pieces: LibTorch's own copy
// makes a second tensor where type or device differ.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string_view>

namespace headroom::weights::detail {

using TakeBytes = std::function<void(std::string_view)>;

// `bytes` hold as many numbers of type `from` as the tensor has, at any alignment. `done` is called
// with each piece that has been copied.
void copy_in(std::string_view bytes, at::ScalarType from, const at::Tensor& to,
             const TakeBytes& done);

// The same numbers in flat pieces of some MiB, on the device and in the type of `as`, for a reader
// that packs them. Each but the last has a multiple of `unit` numbers.
void in_pieces(std::string_view bytes, at::ScalarType from, const at::TensorOptions& as,
               std::int64_t unit, const std::function<void(const at::Tensor&)>& take,
               const TakeBytes& done);

// Writes all numbers of a tensor in its own type, row by row.
void copy_out(const at::Tensor& from, const TakeBytes& write);

}  // namespace headroom::weights::detail
