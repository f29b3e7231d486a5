#include "headroom/models/detail/rotary_frequencies.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace headroom::models::detail {
namespace {

using at::Tensor;
using at::TensorOptions;
using model::ModelConfig;

std::optional<double> given(const ModelConfig& config, const char* key) {
  const Json& scaling = config.at("rope_scaling");
  const auto found = scaling.find(key);
  if (found == scaling.end() || found->is_null()) return {};
  if (!found->is_number()) config.refuse("rope_scaling", std::string("a number as `") + key + "`");
  return found->get<double>();
}

double parameter(const ModelConfig& config, const char* key) {
  const std::optional<double> value = given(config, key);
  if (!value) config.refuse("rope_scaling", std::string("a number as `") + key + "`");
  return *value;
}

double base_of(const ModelConfig& config) {
  return config.number(config.has("rope_theta") ? "rope_theta" : "rotary_emb_base");  // GPT-NeoX's
}

double most_positions(const ModelConfig& config) {
  return static_cast<double>(config.at_least_1("max_position_embeddings"));
}

// 0, 2/width, 4/width, ...
Tensor exponents(std::int64_t width, const TensorOptions& where) {
  const Tensor even = at::arange(0, width, 2, where.dtype(at::kLong)).to(at::kFloat);
  return even / static_cast<double>(width);
}

Tensor plain(double base, std::int64_t width, const TensorOptions& where) {
  return at::pow(at::Scalar(base), exponents(width, where)).reciprocal();
}

// For texts longer than the model was trained for, a larger base rotates all pairs more slowly.
Tensor dynamic(const ModelConfig& config, std::int64_t width, std::int64_t length,
               const TensorOptions& where) {
  const double most = most_positions(config), factor = parameter(config, "factor"),
               wide = static_cast<double>(width);
  if (static_cast<double>(length) <= most) return plain(base_of(config), width, where);
  // transformers has the length as a tensor here, so the base is rounded to float at each step.
  Tensor base = at::scalar_tensor(length, where.dtype(at::kLong)) * factor;
  base = base / most;
  base = base - (factor - 1);
  base = at::pow(base, wide / (wide - 2)) * base_of(config);
  return at::pow(base, exponents(width, where)).reciprocal();
}

// Llama-3.1 slows slow rotations further, keeps fast ones, and mixes those between.
Tensor llama3(const ModelConfig& config, const Tensor& frequencies) {
  const double factor = parameter(config, "factor");
  const double low = parameter(config, "low_freq_factor");
  const double high = parameter(config, "high_freq_factor");
  const double length = parameter(config, "original_max_position_embeddings");
  const Tensor wavelengths = frequencies.reciprocal() * (2 * M_PI);
  const Tensor slow = wavelengths > length / low, fast = wavelengths < length / high;
  const Tensor slowed = at::where(slow, frequencies / factor, frequencies);
  const Tensor share = (wavelengths.reciprocal() * length - low) / (high - low);
  const Tensor mixed = (1 - share) * slowed / factor + share * slowed;
  return at::where(at::logical_not(fast) * at::logical_not(slow), mixed, slowed);
}

bool flag_or(const ModelConfig& config, const char* key, bool otherwise) {
  const Json& scaling = config.at("rope_scaling");
  const auto found = scaling.find(key);
  if (found == scaling.end()) return otherwise;
  if (!found->is_boolean())
    config.refuse("rope_scaling", std::string("true or false as `") + key + "`");
  return found->get<bool>();
}

double mscale(double scale, double by) {
  return scale <= 1 ? 1 : 0.1 * by * std::log(scale) + 1;
}

double yarn_scaling(const ModelConfig& config, double factor) {
  if (const auto said = given(config, "attention_factor")) return *said;
  const double one = given(config, "mscale").value_or(0),
               all = given(config, "mscale_all_dim").value_or(0);
  return one != 0 && all != 0 ? mscale(factor, one) / mscale(factor, all) : mscale(factor, 1);
}

struct Between {
  double low, high;
};

// The range of pairs over which YaRN goes from unchanged to fully slowed: from the pair that
// rotates `beta_fast` times within the trained length to the pair that rotates `beta_slow` times.
Between yarn_range(const ModelConfig& config, std::int64_t width) {
  const auto or_else = [](std::optional<double> said, double otherwise) {
    return said.value_or(0) != 0 ? *said : otherwise;  // like Python's `or`
  };
  const double length =
      or_else(given(config, "original_max_position_embeddings"), most_positions(config));
  const auto pair_turning = [&](double times) {
    return static_cast<double>(width) * std::log(length / (times * 2 * M_PI)) /
           (2 * std::log(base_of(config)));
  };
  double low = pair_turning(or_else(given(config, "beta_fast"), 32));
  double high = pair_turning(or_else(given(config, "beta_slow"), 1));
  if (flag_or(config, "truncate", true)) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(width - 1));
  return {low, low == high ? high + 0.001 : high};
}

RotaryFrequencies yarn(const ModelConfig& config, std::int64_t width, const TensorOptions& where) {
  const double factor = parameter(config, "factor");
  const Between range = yarn_range(config, width);
  const Tensor waves = at::pow(at::Scalar(base_of(config)), exponents(width, where));
  const Tensor fast = waves.reciprocal(), slow = (factor * waves).reciprocal();
  Tensor ramp = at::arange(width / 2, where.dtype(at::kFloat));
  ramp = (ramp - range.low) / (range.high - range.low);
  const Tensor kept = 1 - at::clamp(ramp, 0, 1);
  return {slow * (1 - kept) + fast * kept, yarn_scaling(config, factor)};
}

// Reads one factor per pair.
Tensor factors(const ModelConfig& config, const char* key, std::int64_t width,
               const TensorOptions& where) {
  const Json& scaling = config.at("rope_scaling");
  const auto found = scaling.find(key);
  const bool right =
      found != scaling.end() && found->is_array() &&
      found->size() == static_cast<std::size_t>(width / 2) &&
      std::all_of(found->begin(), found->end(), [](const Json& one) { return one.is_number(); });
  if (!right)
    config.refuse("rope_scaling", "a list of " + std::to_string(width / 2) + " numbers as `" +
                                      std::string(key) + "`");
  const Tensor host = at::tensor(found->get<std::vector<float>>());
  return where.device_opt() ? host.to(where.device()) : host;
}

RotaryFrequencies longrope(const ModelConfig& config, std::int64_t width, std::int64_t length,
                           const TensorOptions& where) {
  const double trained = static_cast<double>(longrope_length(config));
  const double factor = config.has("original_max_position_embeddings")
                            ? most_positions(config) / trained
                            : parameter(config, "factor");
  const bool is_long = static_cast<double>(length) > trained;
  const Tensor stretch = factors(config, is_long ? "long_factor" : "short_factor", width, where);
  const Tensor waves = at::pow(at::Scalar(base_of(config)), exponents(width, where));
  const double usual = factor <= 1 ? 1 : std::sqrt(1 + std::log(factor) / std::log(trained));
  return {(stretch * waves).reciprocal(), given(config, "attention_factor").value_or(usual)};
}

}  // namespace

std::int64_t longrope_length(const ModelConfig& config) {
  const char* key = config.has("original_max_position_embeddings")
                        ? "original_max_position_embeddings"
                        : "max_position_embeddings";
  return config.at_least_1(key);
}

RotaryKind rotary_kind(const ModelConfig& config) {
  static const std::map<std::string, RotaryKind> kinds = {
      {"default", RotaryKind::plain},     {"linear", RotaryKind::linear},
      {"dynamic", RotaryKind::dynamic},   {"yarn", RotaryKind::yarn},
      {"longrope", RotaryKind::longrope}, {"llama3", RotaryKind::llama3}};
  if (!config.has("rope_scaling") || config.is_null("rope_scaling")) return RotaryKind::plain;
  const Json& scaling = config.at("rope_scaling");
  if (!scaling.is_object()) config.refuse("rope_scaling", "an object or null");
  std::string name;
  for (const char* key : {"rope_type", "type"})  // `type` is the older name and takes precedence
    if (const auto kind = scaling.find(key); kind != scaling.end() && kind->is_string())
      name = kind->get<std::string>();
  if (config.type() == "phi3") {
    if (name == "su" || name == "yarn") name = "longrope";  // the name in older files
    if (name != "longrope") config.refuse("rope_scaling", "a `type` of longrope");
  }
  const auto found = kinds.find(name);
  if (found == kinds.end())
    config.refuse("rope_scaling",
                  "a `rope_type` of default, linear, dynamic, yarn, longrope or llama3");
  return found->second;
}

RotaryFrequencies rotary_frequencies(RotaryKind kind, const ModelConfig& config, std::int64_t width,
                                     std::int64_t length, const TensorOptions& where) {
  switch (kind) {
    case RotaryKind::dynamic:
      return {dynamic(config, width, length, where)};
    case RotaryKind::yarn:
      return yarn(config, width, where);
    case RotaryKind::longrope:
      return longrope(config, width, length, where);
    default:
      break;
  }
  const Tensor frequencies = plain(base_of(config), width, where);
  if (kind == RotaryKind::linear) return {frequencies / parameter(config, "factor")};
  if (kind == RotaryKind::llama3) return {llama3(config, frequencies)};
  return {frequencies};
}

}  // namespace headroom::models::detail
