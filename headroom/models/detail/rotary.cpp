#include "headroom/models/detail/rotary.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <utility>

namespace headroom::models::detail {
namespace {

using at::Tensor;

Tensor half_turned(const Tensor& states) {
  const std::int64_t half = states.size(-1) / 2;
  const Tensor first = states.slice(-1, 0, half), second = states.slice(-1, half);
  const Tensor negative = -second;
  return at::cat({negative, first}, -1);
}

}  // namespace

Rotary::Rotary(model::Rope rope, Transformers transformers)
    : rope_(std::move(rope)), longest_(rope_.most) {
  inverse_frequencies_ = register_buffer("inv_freq", rotary_frequencies(rope_, 0, {}));
  if (transformers == Transformers::v5)
    register_buffer("original_inv_freq", inverse_frequencies_.clone());
}

Tensor Rotary::frequencies_for(std::int64_t length) {
  const bool dynamic = rope_.kind == model::RopeKind::dynamic;
  if (dynamic) {
    // A long text changes the frequencies until a text shorter than `most` resets them.
    longest_ = length < rope_.most ? rope_.most : std::max(longest_, length);
    length = longest_;
  }
  const bool changes = dynamic ? length > rope_.most
                               : rope_.kind == model::RopeKind::longrope &&
                                     static_cast<double>(length) > rope_.trained;
  if (!changes) return inverse_frequencies_;
  return rotary_frequencies(rope_, length, at::device(inverse_frequencies_.device()));
}

CosSin Rotary::operator()(const Tensor& positions, at::ScalarType type) {
  const at::NoGradGuard no_grad;
  // bfloat16 cannot tell positions above 256 apart, so this runs without autocast.
  const c10::impl::ExcludeDispatchKeyGuard without_autocast(c10::autocast_dispatch_keyset);
  const Tensor frequencies = frequencies_for(positions.size(1))
                                 .unsqueeze(0)
                                 .unsqueeze(2)
                                 .to(at::kFloat)
                                 .expand({positions.size(0), -1, 1});
  const Tensor places = positions.unsqueeze(1).to(at::kFloat);
  const Tensor angles = at::matmul(frequencies, places).transpose(1, 2);
  const Tensor both = at::cat({angles, angles}, -1);
  Tensor cos = both.cos();
  cos = cos * rope_.scaling;
  Tensor sin = both.sin();
  sin = sin * rope_.scaling;
  return {cos.to(type), sin.to(type)};
}

Tensor rotated(const Tensor& states, const CosSin& by) {
  const Tensor cos = by.cos.unsqueeze(1), sin = by.sin.unsqueeze(1);
  const Tensor straight = states * cos;
  Tensor across = half_turned(states);
  across = across * sin;
  return straight + across;
}

Tensor partly_turned(const Tensor& states, const CosSin& by) {
  const std::int64_t width = by.cos.size(-1);
  const Tensor part = rotated(states.slice(-1, 0, width), by);
  return at::cat({part, states.slice(-1, width)}, -1);
}

}  // namespace headroom::models::detail
