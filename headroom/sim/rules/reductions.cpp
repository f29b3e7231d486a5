#include "headroom/sim/rules/reductions.h"

#include <ATen/WrapDimUtilsMulti.h>
#include <c10/core/ScalarType.h>

#include "headroom/sim/rules/families.h"

namespace headroom::sim::rules {
namespace {

using Correction = std::optional<Scalar>;

// Sums of integers are int64.
ScalarType sum_type(const Tensor& x, OptionalType type = {}) {
  if (type) return *type;
  return at::isIntegralType(x.scalar_type(), true) ? at::kLong : x.scalar_type();
}

Tensor spread(const Tensor& x, OptionalIntArrayRef dims, bool keep) {
  return contiguous(reduced(x, dims, keep), x, c10::toRealValueType(x.scalar_type()));
}

void add_spreads(Table& table) {
  const auto one = [](const Tensor& x, OptionalIntArrayRef dims, const Correction&, bool keep) {
    return spread(x, dims, keep);
  };
  const auto with_mean = [](const Tensor& x, OptionalIntArrayRef dims, const Correction&,
                            bool keep) {
    return std::tuple(spread(x, dims, keep), contiguous(reduced(x, dims, keep), x));
  };
  table.rule("var.correction", one);
  table.rule("std.correction", one);
  table.rule("var_mean.correction", with_mean);
  table.rule("std_mean.correction", with_mean);
}

// The batch, then the number of rows of x1 and of x2.
Sizes distances(const Tensor& x1, const Tensor& x2) {
  Sizes sizes = at::infer_size(x1.sizes().slice(0, x1.sizes().size() - 2),
                               x2.sizes().slice(0, x2.sizes().size() - 2));
  sizes.push_back(x1.size(-2));
  sizes.push_back(x2.size(-2));
  return sizes;
}

// Euclidean distances of many rows run as a matrix product.
// Source: aten/src/ATen/native/Distance.cpp, cdist_impl.
bool by_product(const Tensor& x1, const Tensor& x2, double p, std::optional<std::int64_t> mode) {
  const bool large = x1.size(-2) > 25 || x2.size(-2) > 25;
  return p == 2 && (mode.value_or(0) == 1 || (mode.value_or(0) == 0 && large)) && x1.numel() > 0 &&
         x2.numel() > 0;
}

void add_distances(Table& table) {
  table.rule("_cdist_forward",
             [](const Tensor& x1, const Tensor& x2, double p, std::optional<std::int64_t> mode) {
               if (by_product(x1, x2, p, mode) && x1.dim() == x2.dim())
                 return at::_euclidean_dist(x1, x2);
               return contiguous(distances(x1, x2), x1);
             });
  // CUDA keeps a gradient per pair before it sums them; with p = 0 there are none.
  // Source: aten/src/ATen/native/cuda/DistanceKernel.cu, cdist_backward_kernel_impl (2.11.0's
  // library makes its calls).
  table.rule("_cdist_backward",
             [](const Tensor&, const Tensor& x1, const Tensor& x2, double p, const Tensor&) {
               Sizes sizes = distances(x1, x2);
               sizes.back() = x1.size(-1);
               Tensor gradient = contiguous(sizes, x1);
               Tensor pairs;
               if (follows_cuda() && p != 0)
                 pairs = contiguous({gradient.numel() * x2.size(-2)}, x1);
               return gradient;
             });
  table.rule("_pdist_forward", [](const Tensor& x, double) {
    const std::int64_t rows = x.size(0);
    return contiguous({rows * (rows - 1) / 2}, x);
  });
  table.rule("_pdist_backward", [](const Tensor&, const Tensor& x, double p, const Tensor&) {
    Tensor gradient = contiguous(x);
    Tensor pairs;
    if (follows_cuda() && x.size(0) > 1 && p != 0)
      pairs = contiguous({(x.size(0) - 1) * x.numel()}, x);
    return gradient;
  });
}

// Segments are given by their lengths, or by their bounds, of which there is one more.
Tensor segments(const Tensor& data, const Optional& lengths, const Optional& offsets,
                std::int64_t axis) {
  const bool by_length = is_defined(lengths);
  Sizes sizes = (by_length ? lengths : offsets)->sizes().vec();
  if (!by_length) --sizes.back();
  const IntArrayRef rest = data.sizes().slice(static_cast<std::size_t>(axis) + 1);
  sizes.insert(sizes.end(), rest.begin(), rest.end());
  return contiguous(sizes, data);
}

void add_segments(Table& table) {
  table.rule("segment_reduce",
             [](const Tensor& data, std::string_view, const Optional& lengths, const Optional&,
                const Optional& offsets, std::int64_t axis, bool, const std::optional<Scalar>&) {
               return segments(data, lengths, offsets, at::maybe_wrap_dim(axis, data.dim()));
             });
  table.contiguous_as(2, {"_segment_reduce_backward"});
}

void add_sums(Table& table) {
  for (const char* name : {"sum", "sum.dim_IntList", "sum.IntList_out", "nansum", "nansum.out",
                           "mean", "mean.dim", "mean.out", "prod", "prod.dim_int", "prod.int_out",
                           "linalg_vector_norm", "linalg_vector_norm.out", "norm.Scalar",
                           "norm.ScalarOpt_dim", "norm.ScalarOpt_dim_dtype", "norm.out"})
    table.sums(name, Sums::numbers);
  for (const char* name : {"amax", "amax.out", "amin", "amin.out", "max", "min", "all", "all.dim",
                           "all.out", "any", "any.dim", "any.out"})
    table.sums(name, Sums::themselves);
  for (const char* name : {"argmax", "argmax.out", "argmin", "argmin.out"})
    table.sums(name, Sums::places);
  for (const char* name :
       {"var.correction", "std.correction", "var_mean.correction", "std_mean.correction"})
    table.sums(name, Sums::moments);
}

}  // namespace

Sizes reduced(const Tensor& x, OptionalIntArrayRef dims, bool keep) {
  const auto gone = at::dim_list_to_bitset(dims, static_cast<std::size_t>(x.dim()));
  const bool all = !dims.has_value() || dims->empty();
  Sizes sizes;
  for (std::int64_t i = 0; i < x.dim(); ++i) {
    if (!all && !gone[static_cast<std::size_t>(i)])
      sizes.push_back(x.size(i));
    else if (keep)
      sizes.push_back(1);
  }
  return sizes;
}

Sizes reduced(const Tensor& x, std::int64_t dim, bool keep) {
  return reduced(x, OptionalIntArrayRef(dim), keep);
}

void add_reductions(Table& table) {
  add_spreads(table);
  add_distances(table);
  add_segments(table);

  for (const char* name : {"max", "min"})
    table.rule(name, [](const Tensor& x) { return scalar(x); });
  table.rule("_aminmax", [](const Tensor& x) { return std::tuple(scalar(x), scalar(x)); });
  table.rule("_aminmax.dim", [](const Tensor& x, std::int64_t dim, bool keep) {
    const Sizes sizes = reduced(x, dim, keep);
    return std::tuple(contiguous(sizes, x), contiguous(sizes, x));
  });
  table.rule("prod",
             [](const Tensor& x, OptionalType type) { return scalar(x, sum_type(x, type)); });
  table.rule("nansum", [](const Tensor& x, OptionalIntArrayRef dims, bool keep, OptionalType type) {
    return contiguous(reduced(x, dims, keep), x, sum_type(x, type));
  });
  table.rule("linalg__powsum", [](const Tensor& x, const Scalar&, OptionalIntArrayRef dims,
                                  bool keep, OptionalType type) {
    return contiguous(reduced(x, dims, keep), x,
                      type.value_or(c10::toRealValueType(x.scalar_type())));
  });
  // CUDA makes a mask of nonzero elements; the CPU does so except where it counts all of them.
  // Source: aten/src/ATen/native/TensorAdvancedIndexing.cpp, count_nonzero_cuda, count_nonzero_cpu.
  table.rule("count_nonzero.dim_IntList", [](const Tensor& x, IntArrayRef dims) {
    const Tensor mask = follows_cuda() || !dims.empty() ? like(x, at::kBool) : Tensor();
    return contiguous(reduced(x, dims, false), x, at::kLong);
  });
  table.rule("trace", [](const Tensor& x) { return scalar(x, sum_type(x)); });
  add_sums(table);
  table.contiguous_as(0, {"_logcumsumexp"});
  table.rule("histc", [](const Tensor& x, std::int64_t bins, const Scalar&, const Scalar&) {
    return contiguous({bins}, x);
  });
  // CUDA counts whole numbers, too; the CPU does not.
  table.fill("histc",
             [](const Tensor& x, std::int64_t bins, const Scalar& low, const Scalar& high) {
               if (!at::isIntegralType(x.scalar_type(), false))
                 return at::histc(x, bins, low, high);
               return at::histc(x.to(at::kDouble), bins, low, high).to(x.scalar_type());
             });
}

}  // namespace headroom::sim::rules
