#include "headroom/sim/rules/families.h"
#include "headroom/sim/rules/reductions.h"

namespace headroom::sim::rules {
namespace {

auto with_places(const Tensor& x, std::int64_t dim, bool keep) {
  const Sizes sizes = reduced(x, dim, keep);
  return std::tuple(contiguous(sizes, x), contiguous(sizes, x, at::kLong));
}

// CUDA sorts a flat copy, with the places in a second tensor, and takes the middle element.
// Source: aten/src/ATen/native/cuda/Sorting.cpp, median_impl (2.11.0's library makes its calls:
// flatten, sort, then where or index).
Tensor median_of_all(const Tensor& x) {
  Tensor sorted;
  if (follows_cuda() && x.numel() > 0) {
    const Tensor flat = as_contiguous(x);
    sorted = contiguous({x.numel()}, x);
    const Tensor places = contiguous({x.numel()}, x, at::kLong);
  }
  return scalar(x);
}

}  // namespace

void add_sorting(Table& table) {
  table.rule("kthvalue", [](const Tensor& x, std::int64_t, std::int64_t dim, bool keep) {
    return with_places(x, dim, keep);
  });
  for (const char* name : {"median.dim", "nanmedian.dim", "mode"})
    table.rule(name, [](const Tensor& x, std::int64_t dim, bool keep) {
      return with_places(x, dim, keep);
    });
  for (const char* name : {"median", "nanmedian"}) {
    table.rule(name, [](const Tensor& x) { return median_of_all(x); });
  }

  const auto places = [](const Tensor& x, bool out_int32) {
    return contiguous(x.sizes(), x, out_int32 ? at::kInt : at::kLong);
  };
  const auto place = [](const Tensor& sorted, bool out_int32) {
    return scalar(sorted, out_int32 ? at::kInt : at::kLong);
  };
  table.rule("bucketize.Tensor", [=](const Tensor& x, const Tensor&, bool out_int32, bool) {
    return places(x, out_int32);
  });
  table.rule("bucketize.Scalar", [=](const Scalar&, const Tensor& sorted, bool out_int32, bool) {
    return place(sorted, out_int32);
  });
  using Side = std::optional<std::string_view>;
  table.rule("searchsorted.Tensor", [=](const Tensor&, const Tensor& x, bool out_int32, bool, Side,
                                        const Optional&) { return places(x, out_int32); });
  table.rule("searchsorted.Scalar",
             [=](const Tensor& sorted, const Scalar&, bool out_int32, bool, Side, const Optional&) {
               return place(sorted, out_int32);
             });

  for (const char* name :
       {"_unique", "_unique2", "unique_consecutive", "unique_dim", "unique_dim_consecutive"})
    table.needs_values(name, "sort, whose result is as long as its input");
  table.needs_values("bincount",
                     "zeros of the number of bins that you know, and index_add_ with ones");
}

}  // namespace headroom::sim::rules
