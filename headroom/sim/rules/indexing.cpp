#include <ATen/core/List.h>

#include "headroom/sim/device/alias.h"
#include "headroom/sim/device/assumed.h"
#include "headroom/sim/device/known.h"
#include "headroom/sim/device/running_operator.h"
#include "headroom/sim/rules/families.h"
#include "headroom/sim/rules/results.h"

namespace headroom::sim::rules {
namespace {

using Indices = c10::List<std::optional<Tensor>>;

bool is_mask(const Tensor& index) {
  return index.scalar_type() == at::kBool || index.scalar_type() == at::kByte;
}

std::vector<Tensor> given(const Indices& indices) {
  std::vector<Tensor> tensors;
  for (const std::optional<Tensor>& index : indices)
    if (is_defined(index)) tensors.push_back(*index);
  return tensors;
}

// Throws if the values are unknown, since then their number is, too, and the card assumes none.
std::int64_t count_nonzero(const Tensor& x, const char* advice) {
  if (detail::on_card(x) && detail::is_known(x)) {
    detail::Aliases aliases(c10::DeviceType::CPU);
    return at::count_nonzero(aliases.of(x)).item<std::int64_t>();
  }
  if (!detail::running.assumes) throw NeedsValues{advice};
  return detail::assumed_true(*detail::running.card, x);
}

// One row each, as nonzero lays them out on either device: one dimension after the other.
Tensor rows_of_places(std::int64_t count, const Tensor& x) {
  return contiguous({x.dim(), count}, x, at::kLong).t();
}

// The places where a mask is true, in memory of the card like the result of CUDA's nonzero.
Tensor places_of(const Tensor& mask) {
  return rows_of_places(
      count_nonzero(mask,
                    "where or masked_fill, which keep the shape, in place of a mask as an index"),
      mask);
}

Tensor nonzero(const Tensor& x) {
  return rows_of_places(count_nonzero(x, "nonzero_static with a size that you know, or where"), x);
}

// As on CUDA, a mask becomes as many indices as it has dimensions.
Indices without_masks(const Indices& indices) {
  Indices expanded;
  for (const std::optional<Tensor>& index : indices) {
    if (!is_defined(index) || !is_mask(*index)) {
      expanded.push_back(index);
      continue;
    }
    const Tensor places = places_of(*index);
    for (std::int64_t dim = 0; dim < index->dim(); ++dim) expanded.push_back(places.select(1, dim));
  }
  return expanded;
}

// The result without data; resizes `out` if it is given.
Tensor on_meta(const Tensor& x, const Indices& indices, const Tensor& out = {}) {
  detail::Aliases aliases(c10::DeviceType::Meta);
  Indices without_data;
  for (const std::optional<Tensor>& index : indices)
    without_data.push_back(is_defined(index) ? std::optional(aliases.of(*index)) : std::nullopt);
  if (!out.defined()) return at::index(aliases.of(x), without_data);
  Tensor written = aliases.of(out);
  return at::index_out(written, aliases.of(x), without_data);
}

Tensor indexed(const Tensor& x, const Indices& indices) {
  const Indices expanded = without_masks(indices);
  const Tensor meta = on_meta(x, expanded);
  return at::empty_strided(meta.sizes(), meta.strides(), x.options());
}

// A number written through one mask runs as masked_fill, which needs no places.
// Source: aten/src/ATen/native/TensorAdvancedIndexingUtils.h, canDispatchToMaskedFill.
bool is_masked_fill(const Indices& indices, const Tensor& values) {
  const std::vector<Tensor> masks = given(indices);
  return masks.size() == 1 && is_mask(masks.front()) && values.numel() == 1;
}

// CUDA sorts the places before it sums the values of equal ones.
// Source: aten/src/ATen/native/cuda/Indexing.cu, index_put_with_sort_kernel.
struct Sorted {
  Tensor places, values, sorted, order, range;
};

Sorted sorted_places(const Tensor& x, const Indices& indices, const Tensor& values) {
  Sizes shape;
  std::int64_t indexed_dims = 0;
  for (const Tensor& index : given(indices)) {
    shape = at::infer_size(shape, index.sizes());
    ++indexed_dims;
  }
  Sorted made;
  made.places = contiguous(shape, x, at::kLong);
  std::int64_t elements = made.places.numel();
  for (std::int64_t i = 0; i < x.dim(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (at >= indices.size() || !is_defined(indices.get(at))) elements *= x.size(i);
  }
  if (!values.is_contiguous() || values.numel() != elements)
    made.values = contiguous({elements}, values);
  if (elements == 0) return made;
  made.sorted = contiguous(made.places);
  made.order = contiguous(made.places);
  made.range = contiguous(made.places);
  return made;
}

Tensor put(const Tensor& x, const Indices& indices, const Tensor& values, bool accumulate, bool) {
  if (is_masked_fill(indices, values) && !accumulate) return x;
  const Indices expanded = without_masks(indices);
  Sorted temporaries;
  if (follows_cuda() && accumulate) temporaries = sorted_places(x, expanded, values);
  return x;
}

Tensor selected(const Tensor& x, std::int64_t dim, const Tensor& index) {
  Sizes sizes = x.sizes().vec();
  if (!sizes.empty())
    sizes[static_cast<std::size_t>(at::maybe_wrap_dim(dim, x.dim()))] = index.numel();
  return contiguous(sizes, x);
}

// CUDA indexes with the mask.
// Source: aten/src/ATen/native/cuda/IndexKernel.cpp, masked_select_out_cuda_impl.
std::pair<Tensor, Indices> for_masked_select(const Tensor& x, const Tensor& mask) {
  const auto [where, values] = at::expand_outplace(mask.dim() == 0 ? mask.unsqueeze(0) : mask,
                                                   x.dim() == 0 ? x.unsqueeze(0) : x);
  return {*values, {*where}};
}

void add_data_dependent(Table& table) {
  table.rule("nonzero", nonzero);
  table.rule("masked_select", [](const Tensor& x, const Tensor& mask) {
    const auto [values, where] = for_masked_select(x, mask);
    return indexed(values, where);
  });
  table.rule("masked_select.out", [](const Tensor& x, const Tensor& mask, const Tensor& out) {
    const auto [values, where] = for_masked_select(x, mask);
    return detail::written(out, on_meta(values, without_masks(where), out)).argument;
  });
  table.rule("repeat_interleave.Tensor",
             [](const Tensor& repeats, std::optional<std::int64_t> size) {
               if (!size) throw NeedsValues{"output_size, or one number of repeats for all"};
               return contiguous({*size}, repeats);
             });
  table.rule("_assert_async", [](const Tensor&) {});  // nothing to check without data
  table.rule("_assert_async.msg", [](const Tensor&, std::string_view) {});
}

}  // namespace

void add_indexing(Table& table) {
  add_data_dependent(table);
  table.rule("index.Tensor",
             [](const Tensor& x, const Indices& indices) { return indexed(x, indices); });
  table.rule("index.Tensor_out", [](const Tensor& x, const Indices& indices, const Tensor& out) {
    const Indices expanded = without_masks(indices);
    return detail::written(out, on_meta(x, expanded, out)).argument;
  });
  table.rule("_index_put_impl_", put);
  table.rule("index_select", selected);
  table.rule("take",
             [](const Tensor& x, const Tensor& index) { return contiguous(index.sizes(), x); });
  table.rule("nonzero_static", [](const Tensor& x, std::int64_t size, std::int64_t) {
    return contiguous({size, x.dim()}, x, at::kLong);
  });
  // LibTorch's Meta kernel leaves it empty.
  table.rule("isin.Scalar_Tensor", [](const Scalar&, const Tensor& tests, bool, bool) {
    return scalar(tests, at::kBool);
  });
  table.rule("isin.Scalar_Tensor_out",
             [](const Scalar&, const Tensor&, bool, bool, const Tensor& out) {
               return out.resize_(IntArrayRef());
             });
  table.like(0, {"flip"});
  table.contiguous_as(0, {"roll"});
  table.rule("unfold_backward",
             [](const Tensor& gradient, IntArrayRef sizes, std::int64_t, std::int64_t,
                std::int64_t) { return contiguous(sizes, gradient); });
  const auto triangle = [](bool lower) {
    return [lower](std::int64_t rows, std::int64_t columns, std::int64_t offset, OptionalType type,
                   std::optional<c10::Layout>, std::optional<c10::Device> device,
                   std::optional<bool>) {
      std::int64_t elements = 0;
      for (std::int64_t row = 0; row < rows; ++row) {
        const std::int64_t up_to =
            std::clamp(row + offset + (lower ? 1 : 0), std::int64_t{0}, columns);
        elements += lower ? up_to : columns - up_to;
      }
      return at::empty({2, elements},
                       at::TensorOptions().dtype(type.value_or(at::kLong)).device(device));
    };
  };
  table.rule("tril_indices", triangle(true));
  table.rule("triu_indices", triangle(false));
}

}  // namespace headroom::sim::rules
