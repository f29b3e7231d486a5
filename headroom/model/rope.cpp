#include "headroom/model/rope.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

namespace headroom::model {
namespace {

constexpr std::array<std::pair<std::string_view, RopeKind>, 6> kKinds{{
    {"default", RopeKind::plain},
    {"linear", RopeKind::linear},
    {"dynamic", RopeKind::dynamic},
    {"yarn", RopeKind::yarn},
    {"longrope", RopeKind::longrope},
    {"llama3", RopeKind::llama3},
}};

RopeKind kind_of(const ModelConfig& config) {
  if (!config.has("rope_scaling") || config.is_null("rope_scaling")) return RopeKind::plain;
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
  for (const auto& [known, kind] : kKinds)
    if (known == name) return kind;
  config.refuse("rope_scaling",
                "a `rope_type` of default, linear, dynamic, yarn, longrope or llama3");
}

// The object `rope_scaling`.
class Scaling {
 public:
  explicit Scaling(const ModelConfig& config) : config_(config) {}

  [[nodiscard]] std::optional<double> given(const char* key) const {
    const Json* const value = find(key);
    if (value == nullptr || value->is_null()) return {};
    if (!value->is_number()) refuse("a number", key);
    return value->get<double>();
  }
  [[nodiscard]] double number(const char* key) const {
    const std::optional<double> value = given(key);
    if (!value) refuse("a number", key);
    return *value;
  }
  // Like Python's `or`: zero is as good as nothing.
  [[nodiscard]] double number_or(const char* key, double otherwise) const {
    const double said = given(key).value_or(0);
    return said != 0 ? said : otherwise;
  }
  [[nodiscard]] bool flag_or(const char* key, bool otherwise) const {
    const Json* const value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_boolean()) refuse("true or false", key);
    return value->get<bool>();
  }
  [[nodiscard]] std::vector<float> factors(const char* key, std::int64_t count) const {
    const Json* const value = find(key);
    const auto is_number = [](const Json& one) { return one.is_number(); };
    if (value == nullptr || !value->is_array() ||
        value->size() != static_cast<std::size_t>(count) ||
        !std::all_of(value->begin(), value->end(), is_number))
      refuse("a list of " + std::to_string(count) + " numbers", key);
    return value->get<std::vector<float>>();
  }

 private:
  [[nodiscard]] const Json* find(const char* key) const {
    const Json& scaling = config_.at("rope_scaling");
    const auto found = scaling.find(key);
    return found == scaling.end() ? nullptr : &*found;
  }
  [[noreturn]] void refuse(const std::string& what, const char* key) const {
    config_.refuse("rope_scaling", what + " as `" + key + "`");
  }

  const ModelConfig& config_;
};

double mscale(double scale, double by) {
  return scale <= 1 ? 1 : 0.1 * by * std::log(scale) + 1;
}

double yarn_scaling(const Scaling& said, double factor) {
  if (const auto given = said.given("attention_factor")) return *given;
  const double one = said.given("mscale").value_or(0),
               all = said.given("mscale_all_dim").value_or(0);
  return one != 0 && all != 0 ? mscale(factor, one) / mscale(factor, all) : mscale(factor, 1);
}

void read_longrope(Rope& rope, const ModelConfig& config, const Scaling& said) {
  constexpr const char* kTrained = "original_max_position_embeddings";
  const bool has_trained = config.has(kTrained);
  const double most = static_cast<double>(rope.most);
  rope.trained = has_trained ? static_cast<double>(config.at_least_1(kTrained)) : most;
  rope.factor = has_trained ? most / rope.trained : said.number("factor");
  rope.short_factors = said.factors("short_factor", rope.width / 2);
  rope.long_factors = said.factors("long_factor", rope.width / 2);
  const double usual =
      rope.factor <= 1 ? 1 : std::sqrt(1 + std::log(rope.factor) / std::log(rope.trained));
  rope.scaling = said.given("attention_factor").value_or(usual);
}

}  // namespace

Rope::Rope(const ModelConfig& config, std::int64_t rotated)
    : kind(kind_of(config)),
      width(rotated),
      most(config.at_least_1("max_position_embeddings")),
      base(config.number(config.has("rope_theta") ? "rope_theta" : "rotary_emb_base")) {
  const bool has_own = config.has("head_dim") && !config.is_null("head_dim");
  if (width < 2 || width % 2 != 0)
    config.refuse(has_own ? "head_dim" : "hidden_size",
                  "a width of heads whose rotated part, here " + std::to_string(width) +
                      ", is even (pairs of numbers are rotated)");
  const Scaling said(config);
  if (kind == RopeKind::linear || kind == RopeKind::dynamic || kind == RopeKind::yarn ||
      kind == RopeKind::llama3)
    factor = said.number("factor");
  if (kind == RopeKind::llama3) {
    low_frequency = said.number("low_freq_factor");
    high_frequency = said.number("high_freq_factor");
    trained = said.number("original_max_position_embeddings");
  } else if (kind == RopeKind::yarn) {
    trained = said.number_or("original_max_position_embeddings", static_cast<double>(most));
    fast = said.number_or("beta_fast", 32);
    slow = said.number_or("beta_slow", 1);
    truncates = said.flag_or("truncate", true);
    scaling = yarn_scaling(said, factor);
  } else if (kind == RopeKind::longrope) {
    read_longrope(*this, config, said);
  }
}

}  // namespace headroom::model
