// The store of a quantised weight (nn/quantise.h): products with it, a tile at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "headroom/kernels/packed.h"
#include "headroom/libtorch/stored_weight.h"

namespace headroom::nn::detail {

class PackedWeight final : public libtorch::Store,
                           public std::enable_shared_from_this<PackedWeight> {
 public:
  // `sizes`: [rows, columns], or [matrices, rows, columns] for matrices packed one below the other.
  // `transposed`: the packed matrix is [columns, rows].
  PackedWeight(kernels::Packed packed, std::vector<std::int64_t> sizes, bool transposed = false);

  [[nodiscard]] at::Tensor product(const at::Tensor& x, bool transposed,
                                   const at::Tensor& bias) const override;
  [[nodiscard]] at::Tensor grouped_product(const at::Tensor& x, bool transposed,
                                           const at::Tensor& ends) const override;
  [[nodiscard]] at::Tensor whole(at::ScalarType type) const override;
  void assign(const at::Tensor& values) override;
  [[nodiscard]] std::vector<at::Tensor> tensors() const override { return packed_.tensors(); }
  [[nodiscard]] std::shared_ptr<libtorch::Store> copy(c10::Device device) const override;

  [[nodiscard]] const kernels::Packed& packed() const { return packed_; }
  [[nodiscard]] bool is_transposed() const { return transposed_; }
  // Of one matrix.
  [[nodiscard]] std::int64_t rows() const { return sizes_[sizes_.size() - 2]; }
  [[nodiscard]] std::int64_t columns() const { return sizes_.back(); }
  [[nodiscard]] std::int64_t matrices() const { return transposed_ ? 1 : packed_.rows / rows(); }

 private:
  const kernels::Packed packed_;
  const std::vector<std::int64_t> sizes_;
  const bool transposed_;
};

// Packs a packed matrix in another form, some rows at a time.
void repack(const kernels::Packed& from, const kernels::Packed& into);

}  // namespace headroom::nn::detail
