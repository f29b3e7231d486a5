#include "headroom/sim/rules/families.h"
#include "headroom/sim/rules/results.h"

namespace headroom::sim::rules {
namespace {

enum BagMode : std::int64_t { kSum = 0, kMean = 1, kMax = 2 };  // modes of an embedding bag

// ---- Backward ----

// CUDA sums rows in segments of sorted indices. CUB's scratch memory is left out: its size depends
// on the chip, and is about that of the indices.
// Source: aten/src/ATen/native/cuda/EmbeddingBackwardKernel.cu.
Tensor summed_in_segments(const Tensor& gradient, const Tensor& indices, std::int64_t rows) {
  const std::int64_t n = indices.numel(), width = gradient.size(-1);
  Tensor result = contiguous({rows, width}, gradient);
  const Tensor segments = contiguous({n}, indices),
               segment_count = contiguous({}, indices, at::kLong);
  const Tensor partials = contiguous({n}, indices), partial_offsets = contiguous({n}, indices);
  const Tensor partial_count = contiguous({}, indices, at::kLong);
  const Tensor starts = contiguous({n}, indices);
  const Tensor sums = contiguous({n, width}, gradient, accumulation_type(gradient.scalar_type()));
  return result;
}

// Source: aten/src/ATen/native/cuda/Embedding.cu, embedding_dense_backward_cuda.
Tensor dense_backward(const Tensor& gradient, const Tensor& indices, std::int64_t rows,
                      std::int64_t, bool by_frequency) {
  if (rules_now() == Rules::cpu) return contiguous({rows, gradient.size(-1)}, gradient);
  const Tensor ready = gradient.contiguous();
  if (indices.numel() <= 3072 && !by_frequency) {
    const Tensor in_order = indices.contiguous();
    return contiguous({rows, gradient.size(-1)}, gradient);
  }
  const Tensor sorted = contiguous(indices);
  const Tensor order = contiguous(indices);
  { const Tensor range = contiguous({indices.numel()}, indices); }
  const Tensor counts = by_frequency ? contiguous(indices) : Tensor();
  return summed_in_segments(ready, indices, rows);
}

// ---- Bags ----

using Bag = std::tuple<Tensor, Tensor, Tensor, Tensor>;  // output, bag of each index, sizes, maxima

// Source: aten/src/ATen/native/cuda/EmbeddingBag.cu, _embedding_bag_cuda.
Bag cuda_bag(const Tensor& weight, const Tensor& indices, std::int64_t bags, std::int64_t offsets,
             std::int64_t mode) {
  Tensor sizes = contiguous({offsets}, indices);
  Tensor bag_of_index = contiguous({indices.size(0)}, indices);
  Tensor output = contiguous({bags, weight.size(1)}, weight);
  Tensor maxima =
      mode == kMax ? contiguous({bags, weight.size(1)}, indices) : contiguous({0}, indices);
  return {output, bag_of_index, sizes, maxima};
}

// Sums of these run through a library for embeddings and need no list of bags.
bool is_fast(const Tensor& weight, const Optional& scales, std::int64_t padding) {
  const ScalarType type = weight.scalar_type();
  return (type == at::kFloat || type == at::kHalf) && weight.stride(1) == 1 && padding < 0 &&
         (!scales || !scales->defined() || scales->stride(0) == 1);
}

// Source: aten/src/ATen/native/EmbeddingBag.cpp, _embedding_bag_cpu_impl; as meta_embedding_bag of
// torch/_meta_registrations.py 2.11 has it.
Bag cpu_bag(const Tensor& weight, const Tensor& indices, const Tensor& offsets, std::int64_t bags,
            std::int64_t mode, const Optional& scales, std::int64_t padding, bool forward_only) {
  const bool listed = mode != kSum || !is_fast(weight, scales, padding);
  Tensor output = contiguous({bags, weight.size(1)}, weight);
  Tensor bag_of_index = contiguous({listed ? indices.size(0) : 0}, offsets);
  Tensor sizes = contiguous({forward_only ? offsets.size(0) : bags}, offsets);
  Tensor maxima =
      mode == kMax ? contiguous({bags, weight.size(1)}, offsets) : contiguous({bags}, offsets);
  return {output, bag_of_index, sizes, maxima};
}

template <bool forward_only>
Bag bag(const Tensor& weight, const Tensor& indices, const Tensor& offsets, bool, std::int64_t mode,
        bool, const Optional& scales, bool include_last, std::int64_t padding) {
  const std::int64_t bags = offsets.size(0) - (include_last ? 1 : 0);
  if (rules_now() == Rules::cpu)
    return cpu_bag(weight, indices, offsets, bags, mode, scales, padding, forward_only);
  const ScalarType type = at::promote_types(indices.scalar_type(), offsets.scalar_type());
  const Tensor same = indices.to(type), same_offsets = offsets.to(type);
  return cuda_bag(weight, same, bags, offsets.size(0), mode);
}

// CUDA keeps more for a bag than the CPU: computes the rest, in the planned shapes.
Tensor bag_of_each(const Tensor& indices, const Tensor& offsets, std::int64_t bags) {
  const Tensor positions = at::arange(indices.size(0), at::kLong);
  const Tensor starts = offsets.to(at::kLong).narrow(0, 0, bags).contiguous();
  return at::searchsorted(starts, positions, false, true).sub_(1);
}

template <bool forward_only>
Bag fill_bag(const Tensor& weight, const Tensor& indices, const Tensor& offsets, bool by_frequency,
             std::int64_t mode, bool sparse, const Optional& scales, bool include_last,
             std::int64_t padding) {
  auto [output, bag_of_index, sizes, maxima] =
      forward_only ? at::_embedding_bag_forward_only(weight, indices, offsets, by_frequency, mode,
                                                     sparse, scales, include_last, padding)
                   : at::_embedding_bag(weight, indices, offsets, by_frequency, mode, sparse,
                                        scales, include_last, padding);
  const ScalarType type = at::promote_types(indices.scalar_type(), offsets.scalar_type());
  const std::int64_t bags = output.size(0);
  if (rules_now() == Rules::cpu) {
    if (maxima.sizes() != at::IntArrayRef{bags, weight.size(1)}) maxima = at::zeros({bags}, type);
    if (forward_only && sizes.numel() != offsets.numel())
      sizes = at::constant_pad_nd(sizes, {0, offsets.numel() - sizes.numel()}, 0);
    return {output, bag_of_index, sizes, maxima};
  }
  if (bag_of_index.numel() != indices.numel()) bag_of_index = bag_of_each(indices, offsets, bags);
  if (sizes.numel() != offsets.numel())
    sizes = at::constant_pad_nd(sizes, {0, offsets.numel() - sizes.numel()}, 0);
  return {output, bag_of_index.to(type), sizes.to(type),
          mode == kMax ? maxima.to(type) : at::empty({0}, type)};
}

// Source: aten/src/ATen/native/cuda/EmbeddingBag.cu, embedding_bag_backward_cuda_sum_avg (which
// makes a result before the one it returns) and embedding_bag_backward_cuda_max.
Tensor dense_bag_backward(const Tensor& gradient, const Tensor& indices, const Tensor&,
                          const Tensor&, const Tensor&, std::int64_t rows, bool by_frequency,
                          std::int64_t mode, const Optional&, std::int64_t) {
  const Tensor ready = gradient.contiguous();
  Tensor result = contiguous({rows, gradient.size(1)}, gradient);
  if (rules_now() == Rules::cpu || mode == kMax || indices.numel() == 0) return result;
  const Tensor sorted = contiguous(indices);
  const Tensor order = contiguous(indices);
  const Tensor counts = by_frequency ? contiguous(indices) : Tensor();
  return summed_in_segments(ready, indices, rows);
}

Tensor bag_backward(const Tensor& gradient, const Tensor& indices, const Tensor& offsets,
                    const Tensor& bag_of_index, const Tensor& sizes, const Tensor& maxima,
                    std::int64_t rows, bool by_frequency, std::int64_t mode, bool sparse,
                    const Optional& scales, std::int64_t padding) {
  if (sparse)
    return at::_embedding_bag_sparse_backward(gradient, indices, offsets, bag_of_index, sizes, rows,
                                              by_frequency, mode, scales, padding);
  return dense_bag_backward(gradient, indices, bag_of_index, sizes, maxima, rows, by_frequency,
                            mode, scales, padding);
}

}  // namespace

void add_embedding(Table& table) {
  table.rule("embedding_dense_backward", dense_backward);

  table.rule("_embedding_bag", bag<false>);
  table.fill("_embedding_bag", fill_bag<false>);
  table.rule("_embedding_bag_forward_only", bag<true>);
  table.fill("_embedding_bag_forward_only", fill_bag<true>);

  table.rule("_embedding_bag_backward", bag_backward);
  table.rule("_embedding_bag_dense_backward", dense_bag_backward);
  table.rule(
      "_embedding_bag_per_sample_weights_backward",
      [](const Tensor& gradient, const Tensor&, const Tensor& indices, const Tensor&, const Tensor&,
         std::int64_t, std::int64_t) { return contiguous({indices.size(0)}, gradient); });
  // Source: aten/src/ATen/native/cuda/Embedding.cu, embedding_renorm_cuda_ (2.11.0's library makes
  // its calls: sort, and memory for what cub's unique gives).
  table.rule("embedding_renorm_",
             [](Tensor& weight, const Tensor& indices, double, double) -> Tensor& {
               if (rules_now() == Rules::cpu) return weight;
               const Tensor sorted = contiguous(indices);
               { const Tensor places = contiguous(indices, at::kLong); }
               const Tensor unique = contiguous({indices.numel()}, indices);
               const Tensor count = scalar(indices, at::kLong);
               return weight;
             });
}

}  // namespace headroom::sim::rules
