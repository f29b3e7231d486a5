#include "headroom/nn/chunked_loss.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <string>

#include "headroom/base/error.h"
#include "headroom/nn/checkpoint.h"
#include "headroom/nn/detail/check_labels.h"

namespace headroom::nn {
namespace {

using at::Tensor;

void check(const Tensor& states, const Tensor& labels, const ChunkedLossOptions& options) {
  if (options.tokens < 1)
    throw UsageError(expectation("chunked_cross_entropy", "chunks of 1 token or more",
                                 std::to_string(options.tokens)));
  detail::check_labels("chunked_cross_entropy", states, labels);
}

}  // namespace

Tensor chunked_cross_entropy(const std::function<Tensor(const Tensor&)>& head, const Tensor& states,
                             const Tensor& labels, const ChunkedLossOptions& options) {
  check(states, labels, options);
  const Tensor flat = states.reshape({-1, states.size(-1)});
  const Tensor targets = labels.reshape({-1});
  at::ScalarType type = at::kFloat;
  Tensor sum;
  for (std::int64_t start = 0; start < flat.size(0); start += options.tokens) {
    const std::int64_t end = std::min(start + options.tokens, flat.size(0));
    const auto part = [head, target = targets.slice(0, start, end),
                       ignored = options.ignored](const Tensor& chunk) {
      return at::cross_entropy_loss(head(chunk), target, {}, at::Reduction::Sum, ignored);
    };
    Tensor loss = checkpointed(Recompute::nonreentrant, part, flat.slice(0, start, end));
    type = loss.scalar_type();
    loss = loss.to(at::kFloat);
    sum = sum.defined() ? sum + loss : loss;
  }
  const Tensor counted = (targets != options.ignored).sum();
  return (sum / counted).to(type);
}

}  // namespace headroom::nn
