#include "headroom/models/detail/masks.h"

#include <ATen/ATen.h>

#include <limits>

#include "headroom/models/detail/older_masks.h"

namespace headroom::models::detail {

using at::Tensor;

double lowest(at::ScalarType type) {
  if (type == at::kBFloat16) return std::numeric_limits<c10::BFloat16>::lowest();
  if (type == at::kHalf) return std::numeric_limits<c10::Half>::lowest();
  if (type == at::kDouble) return std::numeric_limits<double>::lowest();
  return std::numeric_limits<float>::lowest();
}

namespace {

// The rows that masks are made of by broadcasting.
struct Places {
  Places(const Tensor& tokens, std::int64_t queries, std::int64_t keys)
      : rows(at::arange(tokens.size(0), tokens.options()).view({-1, 1, 1, 1})),
        query((at::arange(queries, tokens.options()) + 0).view({1, 1, -1, 1})),
        key((at::arange(keys, tokens.options()) + 0).view({1, 1, 1, -1})) {}

  const Tensor rows, query, key;
};

Tensor anything(const Tensor& like) {
  return at::ones({}, like.options().dtype(at::kBool));
}

// True where a query may see a key: [1, 1, length, length].
Tensor seen_before(const Places& at, std::optional<std::int64_t> window) {
  if (!window) return at.key <= at.query;
  Tensor seen = at.key > at.query - *window;
  seen = anything(at.key) & seen;
  return seen & (at.key <= at.query);
}

Tensor without_padding(const Tensor& seen, const Tensor& padding, const Places& at) {
  const Tensor all = anything(at.key) & seen;
  return all & at::index(padding, {at.rows, at.key});
}

// The mask as attention takes it: a mask of truth values, or in the eager form one that is added.
Tensor finished(const Tensor& seen, std::int64_t rows, const MaskOptions& options) {
  const Tensor mask = seen.expand({rows, -1, -1, -1});
  if (options.attention == Attention::sdpa) return mask;
  const Tensor zero = at::zeros({}, mask.options().dtype(options.type));
  return at::where(mask, zero, lowest(options.type));
}

bool says_all_ones(const Batch& batch, const Tensor& padding) {
  return batch.mask_is_all_ones || (padding.sum() == padding.numel()).item<bool>();
}

}  // namespace

Tensor causal_mask(const Batch& batch, const Tensor& positions, const MaskOptions& options) {
  if (options.transformers == Transformers::v4_57)
    return older_causal_mask(batch, positions, options);
  const std::int64_t length = positions.size(0);
  Tensor padding;
  if (batch.mask.defined()) padding = batch.mask.to(at::kBool);
  const bool sees_all = !options.window || length < *options.window;
  if (options.attention == Attention::sdpa && sees_all &&
      (!padding.defined() || says_all_ones(batch, padding)))
    return {};
  const Places at(batch.tokens, length, length);
  Tensor seen = seen_before(at, options.window);
  if (padding.defined()) seen = without_padding(seen, padding, at);
  return finished(seen, batch.tokens.size(0), options);
}

Tensor bidirectional_mask(const Batch& batch, std::int64_t queries, const MaskOptions& options) {
  if (!batch.mask.defined()) return {};
  const Tensor padding = batch.mask.to(at::kBool);
  if (batch.mask_is_all_ones || padding.all().item<bool>()) return {};
  const Places at(batch.tokens, queries, padding.size(1));
  const Tensor seen = without_padding(at.query >= 0, padding, at);
  return finished(seen, batch.tokens.size(0), options);
}

}  // namespace headroom::models::detail
