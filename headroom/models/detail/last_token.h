// A decoder classifies a row by its last token (the ForSequenceClassification classes of
// transformers).
#pragma once

#include <ATen/core/Tensor.h>

#include "headroom/model/model_config.h"

namespace headroom::models::detail {

// Selects from logits [batch, length, labels] those of each row's last token that is not padding:
// [batch, labels]. Throws UsageError for several rows if the config has no `pad_token_id`.
[[nodiscard]] at::Tensor at_last_token(const at::Tensor& logits, const at::Tensor& tokens,
                                       const model::ModelConfig& config);

}  // namespace headroom::models::detail
