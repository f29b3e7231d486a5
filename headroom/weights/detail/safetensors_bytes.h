// Copies bytes of a file into a tensor and back, on any device, in pieces: LibTorch's own copy
// makes a second tensor where type or device differ.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string_view>

namespace headroom::weights::detail {

using TakeBytes = std::function<void(std::string_view)>;

// `bytes` hold as many numbers of type `from` as the tensor has, at any alignment. `done` is called
// with each piece that has been copied.
void copy_in(std::string_view bytes, at::ScalarType from, const at::Tensor& to,
             const TakeBytes& done);

// Writes all numbers of a tensor in its own type, row by row.
void copy_out(const at::Tensor& from, const TakeBytes& write);

}  // namespace headroom::weights::detail
