#include "headroom/models/detail/rotary_frequencies.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

namespace headroom::models::detail {
namespace {

using at::Tensor;
using at::TensorOptions;
using model::Rope;
using model::RopeKind;

// 0, 2/width, 4/width, ...
Tensor exponents(const Rope& rope, const TensorOptions& where) {
  const Tensor even = at::arange(0, rope.width, 2, where.dtype(at::kLong)).to(at::kFloat);
  return even / static_cast<double>(rope.width);
}

Tensor waves(const Rope& rope, const TensorOptions& where) {
  return at::pow(at::Scalar(rope.base), exponents(rope, where));
}

// For texts longer than the model was trained for, a larger base rotates all pairs more slowly.
Tensor dynamic(const Rope& rope, std::int64_t length, const TensorOptions& where) {
  const double most = static_cast<double>(rope.most), wide = static_cast<double>(rope.width);
  if (length <= rope.most) return waves(rope, where).reciprocal();
  // transformers has the length as a tensor here, so the base is rounded to float at each step.
  Tensor base = at::scalar_tensor(length, where.dtype(at::kLong)) * rope.factor;
  base = base / most;
  base = base - (rope.factor - 1);
  base = at::pow(base, wide / (wide - 2)) * rope.base;
  return at::pow(base, exponents(rope, where)).reciprocal();
}

// Llama-3.1 slows slow rotations further, keeps fast ones, and mixes those between.
Tensor llama3(const Rope& rope, const Tensor& frequencies) {
  const double low = rope.low_frequency, high = rope.high_frequency;
  const Tensor wavelengths = frequencies.reciprocal() * (2 * M_PI);
  const Tensor slow = wavelengths > rope.trained / low, fast = wavelengths < rope.trained / high;
  const Tensor slowed = at::where(slow, frequencies / rope.factor, frequencies);
  const Tensor share = (wavelengths.reciprocal() * rope.trained - low) / (high - low);
  const Tensor mixed = (1 - share) * slowed / rope.factor + share * slowed;
  return at::where(at::logical_not(fast) * at::logical_not(slow), mixed, slowed);
}

// YaRN goes from unchanged to fully slowed over a range of pairs: from the pair that rotates `fast`
// times within the trained length to the pair that rotates `slow` times.
Tensor yarn(const Rope& rope, const TensorOptions& where) {
  const auto pair_rotating = [&](double times) {
    return static_cast<double>(rope.width) * std::log(rope.trained / (times * 2 * M_PI)) /
           (2 * std::log(rope.base));
  };
  double low = pair_rotating(rope.fast), high = pair_rotating(rope.slow);
  if (rope.truncates) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(rope.width - 1));
  if (low == high) high += 0.001;
  const Tensor each = waves(rope, where);
  const Tensor fast = each.reciprocal(), slow = (rope.factor * each).reciprocal();
  Tensor ramp = at::arange(rope.width / 2, where.dtype(at::kFloat));
  ramp = (ramp - low) / (high - low);
  const Tensor kept = 1 - at::clamp(ramp, 0, 1);
  return slow * (1 - kept) + fast * kept;
}

Tensor longrope(const Rope& rope, std::int64_t length, const TensorOptions& where) {
  const bool is_long = static_cast<double>(length) > rope.trained;
  const Tensor host = at::tensor(is_long ? rope.long_factors : rope.short_factors);
  const Tensor stretch = where.device_opt() ? host.to(where.device()) : host;
  return (stretch * waves(rope, where)).reciprocal();
}

}  // namespace

Tensor rotary_frequencies(const Rope& rope, std::int64_t length, const TensorOptions& where) {
  switch (rope.kind) {
    case RopeKind::dynamic:
      return dynamic(rope, length, where);
    case RopeKind::yarn:
      return yarn(rope, where);
    case RopeKind::longrope:
      return longrope(rope, length, where);
    case RopeKind::linear:
      return waves(rope, where).reciprocal() / rope.factor;
    case RopeKind::llama3: {
      const Tensor plain = waves(rope, where).reciprocal();
      return plain.is_meta() ? plain : llama3(rope, plain);  // LibTorch has no where() there
    }
    case RopeKind::plain:
      break;
  }
  return waves(rope, where).reciprocal();
}

}  // namespace headroom::models::detail
