// Matrices in fewer bits, and what packs and unpacks them: int8 with a scale a row (1 + 4 / columns
// bytes a number), and NF4 with a scale for 64 numbers (0.516 bytes a number with nested scales).
//
//   const Packed packed = make_packed(Format::nf4, 4096, 4096, weight.device());
//   pack(weight, packed);
//   const at::Tensor tile = at::empty({64, 4096}, weight.options());
//   unpack(packed, /*row=*/128, /*column=*/0, tile);   // rows 128 to 191
//
// A Packed owns its tensors as any holder of at::Tensor does; copies of it share them. The
// functions here have no derivative. Each is one operator, or a few, that write into given tensors
// and ask for no memory (headroom::nf4_encode_, ...): they run on the CPU, on simulated cards in
// both modes, and on real cards where libheadroom_cuda.so is loaded. Several threads may read one
// Packed at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace headroom::kernels {

// int8: code = number / (largest absolute value of its row) * 127, rounded as bitsandbytes does.
// nf4: blocks of 64 numbers in row-major order, across rows; two codes a byte, the first one in the
// high half; ties go downwards. The layout is bitsandbytes 0.50's, to the bit.
enum class Format { int8, nf4 };

struct Packed {
  Format format = Format::nf4;
  std::int64_t rows = 0, columns = 0;
  at::Tensor codes;  // int8: int8 [rows, columns]. nf4: uint8 [ceil(rows * columns / 2)]
  at::Tensor
      scales;  // int8: float [rows]. nf4: [ceil(rows * columns / 64)], float; uint8 if nested
  // Double quantisation of nf4's scales; undefined without it.
  at::Tensor nested_scales;  // float [ceil(blocks / 256)]
  at::Tensor offset;         // float []: the mean of the scales, which was subtracted

  [[nodiscard]] bool is_nested() const { return nested_scales.defined(); }
  [[nodiscard]] c10::Device device() const { return codes.device(); }
  [[nodiscard]] std::vector<at::Tensor> tensors() const;  // those that are defined
};

// Memory for a matrix, without values. `nested` is for nf4 only.
[[nodiscard]] Packed make_packed(Format format, std::int64_t rows, std::int64_t columns,
                                 c10::Device device, bool nested = true);

// Packs a whole matrix (float, double, bfloat16 or half; any strides; on `into`'s device). A matrix
// that is not contiguous is copied in parts of at most 64 rows.
void pack(const at::Tensor& weight, const Packed& into);

// Packs a matrix that comes in pieces, so that it lies whole nowhere:
//
//   Packer packer(into);
//   packer.add(first_rows);
//   packer.add(next_rows);
//   packer.finish();
//
// Pieces are flat or matrices of whole rows, contiguous, and in row-major order; each but the last
// has whole rows (int8) or a multiple of 64 numbers (nf4). Until finish() the float scales of a
// nested matrix are held beside it: 4 bytes for 64 numbers. finish() throws UsageError if numbers
// are missing.
class Packer {
 public:
  explicit Packer(const Packed& into);
  void add(const at::Tensor& numbers);
  void finish();

 private:
  Packed into_;
  at::Tensor scales_;  // float
  std::int64_t next_ = 0;
};

// Writes the part of the matrix that begins at (row, column) and has the tile's size into `tile`,
// which may be a view: stride(1) == 1, any stride(0). Float, double, bfloat16 or half.
void unpack(const Packed& from, std::int64_t row, std::int64_t column, const at::Tensor& tile);

}  // namespace headroom::kernels
