#include "headroom/sim/detail/executing.h"
#include "headroom/sim/detail/streams.h"
#include "headroom/sim/rules/families.h"
#include "headroom/sim/rules/layout.h"

namespace headroom::sim::rules {
namespace {

// Whether CUDA adds the bias within cuBLASLt's kernel: one row of it, plainly added.
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
  TORCH_CHECK(a.scalar_type() == b.scalar_type() && bias.scalar_type() == a.scalar_type(),
              "self and mat2 must have the same dtype, but got ", bias.scalar_type(), " and ",
              b.scalar_type());
  Tensor out = contiguous({a.size(0), b.size(1)}, a);
  (void)bias.expand(out.sizes());
  Card& card = *detail::executing.card;
  const auto stream = detail::allocator_stream(detail::current_stream(card.index()));
  if (fits_cublaslt(bias, a, b, beta))
    card.use_cublaslt(stream);
  else
    card.use_cublas(stream);
  return out;
}

}  // namespace

void add_linear_algebra(Table& table) {
  table.rule("addmm", [](const Tensor& bias, const Tensor& a, const Tensor& b, const Scalar& beta,
                         const Scalar&) { return product_with_bias(bias, a, b, beta); });
  table.rule("_addmm_activation",
             [](const Tensor& bias, const Tensor& a, const Tensor& b, const Scalar& beta,
                const Scalar&, bool) { return product_with_bias(bias, a, b, beta); });
  for (const char* name :
       {"mm", "mm.out", "addmm.out", "addmm_", "bmm", "bmm.out", "baddbmm", "baddbmm.out",
        "baddbmm_", "addbmm", "addmv", "addmv.out", "addmv_", "dot", "vdot"})
    table.uses_cublas(name);
}

}  // namespace headroom::sim::rules
