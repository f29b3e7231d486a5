#include "headroom/models/detail/last_token.h"

#include <ATen/ATen.h>

#include <optional>

#include "headroom/model/tasks.h"

namespace headroom::models::detail {

using at::Tensor;

Tensor at_last_token(const Tensor& logits, const Tensor& tokens, const model::ModelConfig& config) {
  const std::int64_t rows = tokens.size(0);
  const std::optional<std::int64_t> padding = model::last_token_padding(config, rows);
  const Tensor each = at::arange(rows, tokens.options());
  if (!padding) return at::index(logits.select(1, -1), {each});
  Tensor real = tokens != *padding;
  real = real.to(at::kInt);
  const Tensor places = at::arange(tokens.size(1), tokens.options().dtype(at::kInt));
  Tensor last = places * real;
  last = last.argmax(-1);
  return at::index(logits, {each, last});
}

}  // namespace headroom::models::detail
