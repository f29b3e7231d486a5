// Cross entropy of a head over a large vocabulary, computed in chunks of tokens. For each chunk the
// head computes the loss and keeps nothing; the backward pass runs it again. So only one chunk's
// logits are alive at a time, at the price of a second forward pass of the head.
//
//   const Tensor loss = chunked_cross_entropy(
//       [&](const Tensor& states) { return (*lm_head)(states); }, states, labels, {.tokens =
//       1024});
//
// Loss and gradients equal those of the unchunked loss, except for the order of summation. Each
// chunk's sum has the logits' type: in float16 it overflows from some thousand tokens a chunk on.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

namespace headroom::nn {

struct ChunkedLossOptions {
  std::int64_t tokens = 1024;   // per chunk; the last chunk may have fewer
  std::int64_t ignored = -100;  // a label that does not count
};

// `head` turns states [tokens, width] into logits [tokens, classes]. It is copied, and what it
// refers to must live until the backward pass has run. States are [..., width], labels [...].
// Returns the mean over the counted labels, in the logits' type; like cross_entropy's it is NaN if
// none counts. Throws UsageError.
[[nodiscard]] at::Tensor chunked_cross_entropy(
    const std::function<at::Tensor(const at::Tensor& states)>& head, const at::Tensor& states,
    const at::Tensor& labels, const ChunkedLossOptions& options = {});

}  // namespace headroom::nn
