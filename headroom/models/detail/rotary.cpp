#include "headroom/models/detail/rotary.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>

namespace headroom::models::detail {
namespace {

using at::Tensor;
using model::ModelConfig;

Tensor half_turned(const Tensor& states) {
  const std::int64_t half = states.size(-1) / 2;
  const Tensor first = states.slice(-1, 0, half), second = states.slice(-1, half);
  const Tensor negative = -second;
  return at::cat({negative, first}, -1);
}

std::int64_t even(const ModelConfig& config, std::int64_t width) {
  const bool has_own = config.has("head_dim") && !config.is_null("head_dim");
  if (width < 2 || width % 2 != 0)
    config.refuse(has_own ? "head_dim" : "hidden_size",
                  "a width of heads whose turned part, here " + std::to_string(width) +
                      ", is even (pairs of numbers are turned)");
  return width;
}

}  // namespace

Rotary::Rotary(const ModelConfig& config, std::int64_t width)
    : config_(config),
      width_(even(config, width)),
      kind_(rotary_kind(config)),
      most_(config.at_least_1("max_position_embeddings")),
      longest_(most_) {
  const RotaryFrequencies frequencies = rotary_frequencies(kind_, config, width, 0, {});
  scaling_ = frequencies.scaling;
  inverse_frequencies_ = register_buffer("inv_freq", frequencies.inverse);
}

Tensor Rotary::frequencies_for(std::int64_t length) {
  if (kind_ == RotaryKind::dynamic) {
    // A long text changes the frequencies until a text shorter than `most_` resets them.
    longest_ = length < most_ ? most_ : std::max(longest_, length);
    length = longest_;
  }
  const std::int64_t usual = kind_ == RotaryKind::dynamic    ? most_
                             : kind_ == RotaryKind::longrope ? longrope_length(config_)
                                                             : length;
  if (length <= usual) return inverse_frequencies_;
  const auto where = at::device(inverse_frequencies_.device());
  return rotary_frequencies(kind_, config_, width_, length, where).inverse;
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
  cos = cos * scaling_;
  Tensor sin = both.sin();
  sin = sin * scaling_;
  return {cos.to(type), sin.to(type)};
}

Tensor turned(const Tensor& states, const CosSin& by) {
  const Tensor cos = by.cos.unsqueeze(1), sin = by.sin.unsqueeze(1);
  const Tensor straight = states * cos;
  Tensor across = half_turned(states);
  across = across * sin;
  return straight + across;
}

Tensor partly_turned(const Tensor& states, const CosSin& by) {
  const std::int64_t width = by.cos.size(-1);
  const Tensor part = turned(states.slice(-1, 0, width), by);
  return at::cat({part, states.slice(-1, width)}, -1);
}

}  // namespace headroom::models::detail
