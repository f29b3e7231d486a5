// The cross entropy of a head over a large vocabulary, some tokens at a time: the head runs on a
// chunk, gives its loss, and keeps nothing; in the backward pass it runs once more. So only one
// chunk's logits are alive, and the price is the head's forward pass a second time.
//
//   const Tensor loss = chunked_cross_entropy(
//       [&](const Tensor& states) { return (*lm_head)(states); }, states, labels, {.tokens =
//       1024});
//
// Loss and gradients are those of the whole but for the order in which they are summed.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

namespace headroom::nn {

struct ChunkedLossOptions {
  std::int64_t tokens = 1024;   // at a time; the last chunk may have fewer
  std::int64_t ignored = -100;  // a label that does not count
};

// `head` turns states [tokens, width] into logits [tokens, classes]; it is copied, and what it uses
// besides must live until the backward pass has run. States are [..., width], labels [...]. The
// mean over the labels that count, in the logits' type; as of cross_entropy it is no number where
// none does. Throws UsageError.
[[nodiscard]] at::Tensor chunked_cross_entropy(
    const std::function<at::Tensor(const at::Tensor& states)>& head, const at::Tensor& states,
    const at::Tensor& labels, const ChunkedLossOptions& options = {});

}  // namespace headroom::nn
