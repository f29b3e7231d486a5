#include "headroom/models/detail/older_masks.h"

#include <ATen/ATen.h>

namespace headroom::models::detail {

using at::Tensor;

namespace {

// Without a mask, transformers searches the positions for several sequences packed into one row.
// The answer is a tensor, so the mask is made even if nothing is packed.
Tensor packed_sequences(const Tensor& positions, std::int64_t rows) {
  const Tensor ids = positions.unsqueeze(0).expand({rows, -1});
  const Tensor before = ids.slice(1, 0, 1) - 1;
  const Tensor steps = at::diff(ids, 1, -1, before);
  const Tensor starts = steps != 1;
  return starts.cumsum(-1);
}

// True where a query may see a key: [queries, keys], or [batch, queries, keys] if rows differ.
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

bool has_no_padding(const Batch& batch, const Tensor& padding) {
  return batch.mask_is_all_ones || padding.all().item<bool>();
}

// Puts the lowest number wherever padding is not masked yet.
void mask_padding(Tensor& mask, const Tensor& tokens) {
  Tensor seen = mask.slice(3, 0, tokens.size(-1));
  Tensor padding = seen + tokens.unsqueeze(1).unsqueeze(1);
  padding = padding == 0;
  const Tensor filled = seen.masked_fill(padding, lowest(mask.scalar_type()));
  seen.copy_(filled);
}

// Accelerators' kernels would divide by zero for a row that sees nothing, so such a row sees all.
Tensor without_blind_rows(const Tensor& mask) {
  Tensor blind = mask == lowest(mask.scalar_type());
  blind = at::all(blind, -1, true);
  return mask.mul(at::logical_not(blind));
}

}  // namespace

Tensor older_causal_mask(const Batch& batch, const Tensor& positions, const MaskOptions& options) {
  const std::int64_t rows = batch.tokens.size(0), length = positions.size(0);
  Tensor padding, packed;
  if (batch.mask.defined())
    padding = batch.mask.to(at::kBool);
  else if (!options.with_cache)
    packed = packed_sequences(positions, rows);
  const bool sees_all = !options.window || length < *options.window;
  if (options.attention == Attention::sdpa && sees_all && !packed.defined() &&
      (!padding.defined() || has_no_padding(batch, padding)))
    return {};
  Tensor mask = allowed(positions, padding, packed, options.window);
  if (mask.dim() == 2) mask = mask.unsqueeze(0);
  mask = mask.unsqueeze(1).expand({rows, 1, length, length});
  if (options.attention == Attention::sdpa) return mask;
  const Tensor zero = at::zeros({}, mask.options().dtype(options.type));
  return at::where(mask, zero, lowest(options.type));
}

Tensor additive_causal_mask(const Batch& batch, const Tensor& positions,
                            const MaskOptions& options) {
  const bool sdpa = options.attention == Attention::sdpa, given = batch.mask.defined();
  if (sdpa && (!given || has_no_padding(batch, batch.mask))) return {};
  const std::int64_t rows = batch.tokens.size(0), length = positions.size(0),
                     keys = given ? batch.mask.size(-1) : length + 1;
  Tensor mask =
      at::full({length, keys}, lowest(options.type), positions.options().dtype(options.type));
  if (length != 1) mask = at::triu(mask, 1);
  Tensor later = at::arange(keys, positions.options());
  later = later > positions.reshape({-1, 1});
  mask.mul_(later);
  mask = mask.unsqueeze(0).unsqueeze(0).expand({rows, 1, -1, -1});
  if (!given) return mask;
  mask = mask.clone();
  mask_padding(mask, batch.mask);
  return sdpa && !mask.device().is_cpu() ? without_blind_rows(mask) : mask;
}

Tensor ones_mask(const Tensor& tokens) {
  return at::ones(tokens.sizes(), tokens.options().dtype(at::kFloat));
}

Tensor inverted_mask(const Tensor& mask, at::ScalarType type) {
  Tensor inverted = mask.dim() == 2 ? mask.unsqueeze(1).unsqueeze(2) : mask;
  inverted = inverted.to(type);
  inverted = at::rsub(inverted, 1.0);
  return inverted * lowest(type);
}

Tensor decoder_mask(const Tensor& mask) {
  const std::int64_t rows = mask.size(0), length = mask.size(1);
  const Tensor places = at::arange(length, mask.options().dtype(at::kLong));
  Tensor causal = places.unsqueeze(0).unsqueeze(1).repeat({rows, length, 1});
  causal = causal <= places.unsqueeze(0).unsqueeze(2);
  causal = causal.to(mask.scalar_type());
  return causal.unsqueeze(1) * mask.unsqueeze(1).unsqueeze(2);
}

Tensor sdpa_mask(const Batch& batch, at::ScalarType type, bool causal) {
  if (!batch.mask.defined() || batch.mask_is_all_ones) return {};
  if ((batch.mask == 1).all().item<bool>()) return {};
  const std::int64_t rows = batch.mask.size(0), length = batch.mask.size(1);
  Tensor mask = batch.mask.unsqueeze(1).unsqueeze(2).expand({rows, 1, length, length}).to(type);
  mask = at::rsub(mask, 1.0);
  mask = mask.masked_fill(mask.to(at::kBool), lowest(type));
  if (!causal || length == 1) return mask;
  const Tensor places = at::arange(length, mask.options().dtype(at::kLong));
  Tensor later = at::full({length, length}, lowest(type), mask.options().dtype(at::kFloat));
  later.masked_fill_(places < (places + 1).view({length, 1}), 0);
  later = later.to(type).expand({rows, 1, length, length});
  return later.masked_fill(mask.to(at::kBool), lowest(type));
}

Tensor t5_causal_mask(const Tensor& mask, const Tensor& positions, at::ScalarType type) {
  const std::int64_t rows = mask.size(0), length = positions.size(0);
  Tensor causal = at::full({length, length}, lowest(type), positions.options().dtype(type));
  if (length != 1) causal = at::triu(causal, 1);
  {
    const Tensor later = at::arange(length, positions.options()) > positions.reshape({-1, 1});
    causal.mul_(later);
  }
  causal = causal.unsqueeze(0).unsqueeze(1).expand({rows, 1, -1, -1});
  causal = causal.clone();
  Tensor padding = causal + mask.unsqueeze(1).unsqueeze(2);
  padding = padding == 0;
  causal.copy_(causal.masked_fill(padding, lowest(type)));
  return causal;
}

}  // namespace headroom::models::detail
