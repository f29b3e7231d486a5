#include "headroom/models/detail/masks.h"

#include <ATen/ATen.h>

#include <limits>

namespace headroom::models::detail {
namespace {

using at::Tensor;

double lowest(at::ScalarType type) {
  if (type == at::kBFloat16) return std::numeric_limits<c10::BFloat16>::lowest();
  if (type == at::kHalf) return std::numeric_limits<c10::Half>::lowest();
  if (type == at::kDouble) return std::numeric_limits<double>::lowest();
  return std::numeric_limits<float>::lowest();
}

// Without a mask transformers looks in the positions for several sequences packed into one row; it
// finds out by a tensor, so the mask is made whether there are some or not.
Tensor packed_sequences(const Tensor& positions, std::int64_t rows) {
  const Tensor ids = positions.unsqueeze(0).expand({rows, -1});
  const Tensor before = ids.slice(1, 0, 1) - 1;
  const Tensor steps = at::diff(ids, 1, -1, before);
  const Tensor starts = steps != 1;
  return starts.cumsum(-1);
}

// [queries, keys], or [batch, queries, keys] where rows differ.
Tensor allowed(const Tensor& positions, const Tensor& padding, const Tensor& packed,
               std::optional<std::int64_t> window) {
  const Tensor keys = at::arange(positions.size(0), positions.options());
  const Tensor queries = positions.unsqueeze(1);
  Tensor result = keys <= queries;
  if (window) result = (keys > queries - *window) & result;
  if (packed.defined()) {
    const Tensor same = packed.unsqueeze(2) == packed.unsqueeze(1);
    result = result & same;
  }
  if (padding.defined()) result = result & padding.unsqueeze(1);
  return result;
}

bool says_all_ones(const Batch& batch, const Tensor& padding) {
  return batch.mask_is_all_ones || padding.all().item<bool>();
}

}  // namespace

Tensor causal_mask(const Batch& batch, const Tensor& positions, const MaskOptions& options) {
  const std::int64_t rows = batch.tokens.size(0), length = positions.size(0);
  Tensor padding, packed;
  if (batch.mask.defined())
    padding = batch.mask.to(at::kBool);
  else if (!options.with_cache)
    packed = packed_sequences(positions, rows);
  const bool sees_all = !options.window || length < *options.window;
  if (options.attention == Attention::sdpa && sees_all && !packed.defined() &&
      (!padding.defined() || says_all_ones(batch, padding)))
    return {};
  Tensor mask = allowed(positions, padding, packed, options.window);
  if (mask.dim() == 2) mask = mask.unsqueeze(0);
  mask = mask.unsqueeze(1).expand({rows, 1, length, length});
  if (options.attention == Attention::sdpa) return mask;
  const Tensor zero = at::zeros({}, mask.options().dtype(options.type));
  return at::where(mask, zero, lowest(options.type));
}

}  // namespace headroom::models::detail
