#include "headroom/models/detail/last_token.h"

#include <ATen/ATen.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "headroom/base/error.h"

namespace headroom::models::detail {

using at::Tensor;

namespace {

// The padding token as a number to compare tokens with. A negative one, which old files have,
// matches no token.
std::optional<std::int64_t> padding_of(const model::ModelConfig& config) {
  const Json& said = config.at("pad_token_id");
  if (said.is_null()) return {};
  if (!said.is_number_integer()) config.refuse("pad_token_id", "a whole number, or null");
  return said.get<std::int64_t>();
}

}  // namespace

Tensor at_last_token(const Tensor& logits, const Tensor& tokens, const model::ModelConfig& config) {
  const std::int64_t rows = tokens.size(0);
  const std::optional<std::int64_t> padding = padding_of(config);
  if (!padding && rows != 1)
    throw UsageError(expectation("sequence classification",
                                 "a `pad_token_id` in " + config.source() +
                                     ", without which transformers classifies one row at a time",
                                 std::to_string(rows) + " rows", "--batch 1"));
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
