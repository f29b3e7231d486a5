#include "headroom/sim/device/cublas.h"
#include "headroom/sim/device/running_operator.h"
#include "headroom/sim/rules/families.h"
#include "headroom/sim/rules/results.h"

namespace headroom::sim::rules {
namespace {

// True if cuBLASLt's kernel adds the bias: one row, not scaled.
// Source: aten/src/ATen/native/cuda/Blas.cpp, isInputCompliesAddmmCudaLt.
bool fits_cublaslt(const Tensor& bias, const Tensor& a, const Tensor& b, const Scalar& beta) {
  const ScalarType type = a.scalar_type();
  const bool typed =
      type == at::kFloat || type == at::kDouble || type == at::kHalf || type == at::kBFloat16;
  return typed && bias.dim() == 1 && bias.is_contiguous() && bias.size(0) == b.size(1) &&
         beta.toComplexDouble() == 1.0 && b.size(0) > 1 && b.size(1) > 1 && a.numel() > 0;
}

Tensor product_with_bias(const Tensor& bias, const Tensor& a, const Tensor& b, const Scalar& beta) {
  TORCH_CHECK(a.dim() == 2, "mat1 must be a matrix, got ", a.dim(), "-D tensor");
  TORCH_CHECK(b.dim() == 2, "mat2 must be a matrix, got ", b.dim(), "-D tensor");
  TORCH_CHECK(a.size(1) == b.size(0), "mat1 and mat2 shapes cannot be multiplied (", a.size(0), "x",
              a.size(1), " and ", b.size(0), "x", b.size(1), ")");
  TORCH_CHECK(bias.scalar_type() == b.scalar_type(),
              "self and mat2 must have the same dtype, but got ", bias.scalar_type(), " and ",
              b.scalar_type());
  TORCH_CHECK(a.scalar_type() == b.scalar_type(),
              "mat1 and mat2 must have the same dtype, but got ", a.scalar_type(), " and ",
              b.scalar_type());
  Tensor out = contiguous({a.size(0), b.size(1)}, a);
  (void)bias.expand(out.sizes());
  Card& card = *detail::running.card;
  if (fits_cublaslt(bias, a, b, beta))
    detail::use_cublaslt(card);
  else
    detail::use_cublas(card);
  return out;
}

// Products of groups: of rows (a matrix by a batch of matrices; `ends` has the end of each group),
// of columns, or of the dimension that both share. Rows start at multiples of 16 bytes, for the
// card's own copies.
// Source: aten/src/ATen/native/GroupedMMUtils.h, create_grouped_gemm_output_tensor.
Tensor grouped_product(const Tensor& a, const Tensor& b, const Optional& ends, const Optional&,
                       OptionalType type) {
  const bool rows = a.dim() == 2, columns = b.dim() == 2;
  TORCH_CHECK((rows || a.dim() == 3) && (columns || b.dim() == 3),
              "mat_a and mat_b have to be 2 or 3D");
  TORCH_CHECK(a.size(-1) == b.size(-2), "contraction dimension of mat_a and mat_b must match");
  TORCH_CHECK(ends.has_value() == (rows || columns), "offs is given where mat_a or mat_b is 2D");
  at::DimVector sizes{a.size(-2), b.size(-1)};
  if (rows == columns) sizes.insert(sizes.begin(), rows ? ends->size(0) : a.size(0));
  const ScalarType out = type.value_or(a.scalar_type());
  const std::int64_t unit = 16 / static_cast<std::int64_t>(c10::elementSize(out));
  at::DimVector strides{(sizes.back() + unit - 1) / unit * unit, 1};
  if (rows == columns) strides.insert(strides.begin(), sizes[1] * strides[0]);
  return at::empty_strided(sizes, strides, a.options().dtype(out));
}

// ---- Products of other types than their factors' ----

Tensor product(const Tensor& a, const Tensor& b, ScalarType type) {
  Sizes sizes = a.sizes().vec();
  sizes.back() = b.size(-1);
  return contiguous(sizes, a, type);
}

void add_typed_products(Table& table) {
  table.rule("_int_mm", [](const Tensor& a, const Tensor& b) { return product(a, b, at::kInt); });
  table.rule("_scaled_mm", [](const Tensor& a, const Tensor& b, const Tensor&, const Tensor&,
                              const Optional&, const Optional&, OptionalType type,
                              bool) { return product(a, b, type.value_or(a.scalar_type())); });
  for (const char* name : {"mm.dtype", "bmm.dtype"}) {
    table.rule(name, product);
    table.fill(name, [](const Tensor& a, const Tensor& b, ScalarType type) {
      return at::matmul(a.to(type), b.to(type));
    });
  }
  for (const char* name : {"addmm.dtype", "baddbmm.dtype"}) {
    table.rule(name, [](const Tensor&, const Tensor& a, const Tensor& b, ScalarType type,
                        const Scalar&, const Scalar&) { return product(a, b, type); });
    table.fill(name, [](const Tensor& bias, const Tensor& a, const Tensor& b, ScalarType type,
                        const Scalar& beta, const Scalar& alpha) {
      return at::matmul(a.to(type), b.to(type)).mul_(alpha).add_(bias.to(type), beta);
    });
  }
  table.rule("addbmm",
             [](const Tensor&, const Tensor& a, const Tensor& b, const Scalar&, const Scalar&) {
               return contiguous({a.size(1), b.size(2)}, a);
             });
  // Laid out like an elementwise operator's result.
  // Source: aten/src/ATen/native/LinearAlgebra.cpp, build_addr_iter.
  table.rule("addr", [](const Tensor& bias, const Tensor& a, const Tensor& b, const Scalar&,
                        const Scalar&) {
    TORCH_CHECK(a.dim() == 1 && b.dim() == 1, "addr: Expected 1-D arguments vec1 and vec2, got ",
                a.dim(), "-D and ", b.dim(), "-D");
    return elementwise({bias.expand({a.size(0), b.size(0)}), a.unsqueeze(1), b});
  });
  for (const char* name : {"dot", "vdot"})
    table.rule(name, [](const Tensor& a, const Tensor&) { return scalar(a); });
}

}  // namespace

void add_matrix_products(Table& table) {
  add_typed_products(table);
  table.rule("addmm", [](const Tensor& bias, const Tensor& a, const Tensor& b, const Scalar& beta,
                         const Scalar&) { return product_with_bias(bias, a, b, beta); });
  table.rule("_addmm_activation",
             [](const Tensor& bias, const Tensor& a, const Tensor& b, const Scalar& beta,
                const Scalar&, bool) { return product_with_bias(bias, a, b, beta); });
  table.rule("_grouped_mm", grouped_product);
  for (const char* name : {"mm",      "mm.out",    "addmm.out",   "addmm_",      "bmm",
                           "bmm.out", "baddbmm",   "baddbmm.out", "baddbmm_",    "addbmm",
                           "addmv",   "addmv.out", "addmv_",      "dot",         "vdot",
                           "_int_mm", "mm.dtype",  "bmm.dtype",   "addmm.dtype", "baddbmm.dtype"})
    table.uses_cublas(name);
}

}  // namespace headroom::sim::rules
