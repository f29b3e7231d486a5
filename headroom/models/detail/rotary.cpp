#include "headroom/models/detail/rotary.h"

#include <ATen/ATen.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace headroom::models::detail {
namespace {

using at::Tensor;
using formula::ModelConfig;

Tensor inverse_frequencies(double base, std::int64_t width) {
  Tensor exponents = at::arange(0, width, 2, at::dtype(at::kLong)).to(at::kFloat);
  exponents = exponents / static_cast<double>(width);
  const Tensor frequencies = at::pow(at::Scalar(base), exponents);
  return 1.0 / frequencies;
}

double parameter(const ModelConfig& config, const char* key) {
  const Json& scaling = config.at("rope_scaling");
  const auto found = scaling.find(key);
  if (found == scaling.end() || !found->is_number())
    config.refuse("rope_scaling", std::string("a number as `") + key + "`");
  return found->get<double>();
}

// Llama-3.1: slow rotations are slowed further, fast ones stay, those between are mixed.
Tensor llama3(const ModelConfig& config, const Tensor& frequencies) {
  const double factor = parameter(config, "factor");
  const double low = parameter(config, "low_freq_factor");
  const double high = parameter(config, "high_freq_factor");
  const double length = parameter(config, "original_max_position_embeddings");
  const Tensor wavelengths = 2 * M_PI / frequencies;
  const Tensor slow = wavelengths > length / low, fast = wavelengths < length / high;
  const Tensor slowed = at::where(slow, frequencies / factor, frequencies);
  const Tensor share = (length / wavelengths - low) / (high - low);
  const Tensor mixed = (1 - share) * slowed / factor + share * slowed;
  return at::where(at::logical_not(fast) * at::logical_not(slow), mixed, slowed);
}

std::string kind_of(const ModelConfig& config) {
  const Json& scaling = config.at("rope_scaling");
  if (scaling.is_null()) return "default";
  if (!scaling.is_object()) config.refuse("rope_scaling", "an object or null");
  for (const char* key : {"rope_type", "type"})
    if (const auto kind = scaling.find(key); kind != scaling.end() && kind->is_string())
      return kind->get<std::string>();
  return "default";
}

Tensor half_turned(const Tensor& states) {
  const std::int64_t half = states.size(-1) / 2;
  const Tensor first = states.slice(-1, 0, half), second = states.slice(-1, half);
  const Tensor negative = -second;
  return at::cat({negative, first}, -1);
}

}  // namespace

Rotary::Rotary(const ModelConfig& config, std::int64_t width) {
  const Tensor plain = inverse_frequencies(config.number("rope_theta"), width);
  Tensor scaled = plain;
  if (config.has("rope_scaling")) {
    const std::string kind = kind_of(config);
    if (kind == "linear")
      scaled = plain / parameter(config, "factor");
    else if (kind == "llama3")
      scaled = llama3(config, plain);
    else if (kind != "default" && kind != "dynamic")
      config.refuse("rope_scaling", "a `rope_type` of default, linear, dynamic or llama3");
  }
  inverse_frequencies_ = register_buffer("inv_freq", scaled);
}

CosSin Rotary::operator()(const Tensor& positions, at::ScalarType type) const {
  const at::NoGradGuard no_grad;
  const Tensor frequencies = inverse_frequencies_.unsqueeze(0)
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

}  // namespace headroom::models::detail
