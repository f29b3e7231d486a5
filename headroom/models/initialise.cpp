#include "headroom/models/initialise.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>

#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/libtorch/draws.h"
#include "headroom/libtorch/stored_weight.h"
#include "headroom/nn/layers.h"
#include "headroom/nn/module_path.h"
#include "headroom/nn/stacked_experts.h"

namespace headroom::models {
namespace {

using at::Tensor;
using model::ModelConfig;

// A distribution around zero, or a constant.
struct Value {
  enum class Kind { constant, normal, truncated, uniform, sines };
  Kind kind = Kind::constant;
  double size = 0;  // the constant, the standard deviation, or the bound of the uniform one
};

Value normal(double spread) {
  return {Value::Kind::normal, spread};
}

// A parameter and its location in the model.
struct Place {
  const ModelConfig& config;
  const torch::nn::Module& module;
  std::string path;  // of the module; families know it by its last name
  std::string name;  // within the module
  Tensor tensor;

  template <typename Layer>
  [[nodiscard]] bool is_of() const {
    return dynamic_cast<const Layer*>(&module) != nullptr;
  }
  [[nodiscard]] std::string leaf() const { return path.substr(path.rfind('.') + 1); }
  [[nodiscard]] double positive(const char* key) const {
    const double number = config.number(key);
    if (number < 0) config.refuse(key, "a number of at least 0");
    return number;
  }
  [[nodiscard]] double spread() const {
    return positive(config.has("init_std") ? "init_std" : "initializer_range");
  }
};

bool is_product(const Place& place) {
  return place.is_of<nn::Linear>() || place.is_of<nn::Conv1D>() || place.is_of<nn::Conv2d>();
}

// The rule of most families.
Value usual(const Place& place) {
  if (place.name == "bias") return {};
  const bool drawn = is_product(place) || place.is_of<nn::Embedding>();
  if (place.name == "weight" && drawn) return normal(place.spread());
  const bool is_norm =
      place.is_of<nn::LayerNorm>() || place.is_of<nn::RmsNorm>() || place.is_of<nn::BatchNorm2d>();
  if (place.name == "weight" && is_norm) return {.size = 1};
  throw InternalError(expectation("initialise",
                                  "a parameter that " + place.config.type() + " knows",
                                  place.path + "." + place.name));
}

// ---- Exceptions of single families; an empty result means the usual rule ----

using Special = std::optional<Value> (*)(const Place& place);

// Layers that end a residual branch get a smaller spread, the more layers the model has.
std::optional<Value> gpt2(const Place& place) {
  if (place.name != "weight" || place.leaf() != "c_proj") return {};
  return normal(place.spread() /
                std::sqrt(2.0 * static_cast<double>(place.config.count("n_layer"))));
}

// Gemma's norms scale by 1 + weight, so their weights start at zero.
std::optional<Value> gemma(const Place& place) {
  if (place.name == "bias" || is_product(place) || place.is_of<nn::Embedding>()) return {};
  return Value{};
}

std::optional<Value> t5(const Place& place) {
  const double factor = place.positive("initializer_factor");
  const auto below = [&](long long width) {
    return normal(factor * std::pow(static_cast<double>(width), -0.5));
  };
  const ModelConfig& config = place.config;
  const long long width = config.count("d_model"), head = config.count("d_kv");
  const std::string leaf = place.leaf();
  if (leaf == "shared" || leaf == "lm_head") return normal(factor);
  if (leaf == "q") return below(width * head);
  if (leaf == "o") return below(config.count("num_heads") * head);
  if (leaf == "wo") return below(config.count("d_ff"));
  if (is_product(place) || place.is_of<nn::Embedding>()) return below(width);
  return Value{.size = factor};
}

std::optional<Value> vit(const Place& place) {
  const bool token = place.name == "cls_token" || place.name == "position_embeddings";
  if (!token && !(is_product(place) && place.name == "weight")) return {};
  return Value{Value::Kind::truncated, place.spread()};
}

std::optional<Value> deit(const Place& place) {
  if (place.leaf() == "embeddings") return Value{};
  return vit(place);
}

// Kaiming initialisation: convolutions by fan-out; the head by fan-in, like PyTorch's own Linear.
std::optional<Value> resnet(const Place& place) {
  if (place.is_of<nn::Conv2d>()) {
    const Tensor& weight = place.tensor;
    const std::int64_t outputs = weight.size(0) * weight.size(2) * weight.size(3);
    return normal(std::sqrt(2 / static_cast<double>(outputs)));
  }
  const auto* linear = dynamic_cast<const nn::Linear*>(&place.module);
  if (linear == nullptr) return {};
  return Value{Value::Kind::uniform, 1 / std::sqrt(static_cast<double>(linear->weight.size(1)))};
}

std::optional<Value> convnext(const Place& place) {
  if (place.name != "layer_scale_parameter") return {};
  return Value{.size = place.config.number("layer_scale_init_value")};
}

std::optional<Value> distilbert(const Place& place) {
  const bool places = place.leaf() == "position_embeddings";
  if (!places || !place.config.flag("sinusoidal_pos_embds")) return {};
  return Value{Value::Kind::sines};
}

Value value_of(const Place& place) {
  static const std::map<std::string, Special> specials = {
      {"gpt2", gpt2},     {"gemma", gemma},       {"gemma2", gemma},
      {"t5", t5},         {"vit", vit},           {"deit", deit},
      {"resnet", resnet}, {"convnext", convnext}, {"distilbert", distilbert},
  };
  if (const auto special = specials.find(place.config.type()); special != specials.end())
    if (const std::optional<Value> value = special->second(place)) return *value;
  return usual(place);
}

// ---- Writing values ----

// nn.init.trunc_normal_ within [-2, 2], in float as transformers calls it.
Tensor truncated(const Tensor& like, double spread) {
  Tensor numbers = at::empty(like.sizes(), like.options().dtype(at::kFloat));
  if (spread == 0) return numbers.zero_();
  const double share = std::erf(2 / (spread * std::sqrt(2.0)));  // of the normal one that is kept
  numbers.uniform_(-share, share).erfinv_();
  return numbers.mul_(spread * std::sqrt(2.0)).clamp_(-2, 2);
}

// DistilBERT's: columns alternate sines and cosines of falling frequency. Computed here and copied,
// because inside libtorch::on every factory of LibTorch allocates on the device.
void fill_with_sines(const Tensor& to) {
  const auto rows = static_cast<std::size_t>(to.size(0)),
             width = static_cast<std::size_t>(to.size(1));
  std::vector<double> numbers;
  numbers.reserve(rows * width);
  for (std::size_t row = 0; row < rows; ++row)
    for (std::size_t column = 0; column < width; ++column) {
      const double power = 2.0 * static_cast<double>(column / 2) / static_cast<double>(width);
      const double angle = static_cast<double>(row) / std::pow(10000.0, power);
      numbers.push_back(column % 2 == 0 ? std::sin(angle) : std::cos(angle));
    }
  to.copy_(at::from_blob(numbers.data(), to.sizes(), at::kDouble));
}

void draw(const Tensor& to, const Value& value) {
  switch (value.kind) {
    case Value::Kind::constant:
      to.fill_(value.size);
      break;
    case Value::Kind::normal:
      to.normal_(0, value.size);
      break;
    case Value::Kind::truncated:
      to.copy_(truncated(to, value.size));
      break;
    case Value::Kind::uniform:
      to.uniform_(-value.size, value.size);
      break;
    case Value::Kind::sines:
      fill_with_sines(to);
      break;
  }
}

// A weight without memory of its own, such as a quantised one, takes values that are drawn beside
// it.
void give(const Tensor& to, const Value& value) {
  if (libtorch::store_of(to) == nullptr) return draw(to, value);
  const Tensor drawn = at::empty_like(to);
  draw(drawn, value);
  to.copy_(drawn);
}

struct Work {
  const ModelConfig& config;
  std::function<bool(const std::string&)> wanted;
  libtorch::Draws draws;
};

void initialise_experts(Work& work, const nn::StackedExperts& experts, const std::string& path) {
  const auto draw_parts = [&](const Tensor& gate_up, const Tensor& down) {
    for (const auto& [name, part] : experts.by_expert(gate_up, down)) {
      if (!work.wanted(nn::joined(path, name))) continue;
      work.draws.begin(nn::joined(path, name));
      draw(part, normal(Place{work.config, experts, path, name, part}.spread()));
    }
  };
  if (libtorch::store_of(experts.gate_up()) == nullptr)
    return draw_parts(experts.gate_up(), experts.down());
  if (!work.wanted(nn::joined(path, "0.w1.weight"))) return;  // of a packed matrix, all are or none
  const Tensor gate_up = at::empty_like(experts.gate_up()), down = at::empty_like(experts.down());
  draw_parts(gate_up, down);
  experts.gate_up().copy_(gate_up);
  experts.down().copy_(down);
}

void initialise_own(Work& work, torch::nn::Module& module, const std::string& path) {
  if (const auto* const experts = dynamic_cast<const nn::StackedExperts*>(&module)) {
    return initialise_experts(work, *experts, path);
  }
  for (const auto& parameter : module.named_parameters(false)) {
    const std::string name = nn::joined(path, parameter.key());
    if (!work.wanted(name)) continue;
    work.draws.begin(name);
    give(parameter.value(),
         value_of({work.config, module, path, parameter.key(), parameter.value()}));
    const auto* embedding = dynamic_cast<const nn::Embedding*>(&module);
    if (embedding != nullptr && embedding->padding() >= 0)
      parameter.value().select(0, embedding->padding()).zero_();
  }
  if (dynamic_cast<const nn::BatchNorm2d*>(&module) == nullptr) return;
  for (const auto& buffer : module.named_buffers(false))
    if (work.wanted(nn::joined(path, buffer.key())))
      buffer.value().fill_(buffer.key() == "running_var");
}

void initialise_below(Work& work, torch::nn::Module& module, const std::string& path) {
  for (const auto& below : module.named_children()) {
    // nn/lora.h sets the first values of adapters.
    if (below.key() == "lora_A" || below.key() == "lora_B") continue;
    initialise_below(work, *below.value(), nn::joined(path, below.key()));
  }
  initialise_own(work, module, path);
}

void initialise(Model& model, std::function<bool(const std::string&)> wanted) {
  const at::NoGradGuard no_grad;
  const std::vector<Tensor> parameters = model.module().parameters();
  if (parameters.empty()) return;
  Work work{model.config(), std::move(wanted), libtorch::Draws(parameters.front().device())};
  initialise_below(work, model.module(), "");
}

}  // namespace

void initialise(Model& model) {
  initialise(model, [](const std::string&) { return true; });
}

void initialise(Model& model, const std::vector<std::string>& names) {
  initialise(model, [set = std::set<std::string>(names.begin(), names.end())](
                        const std::string& name) { return set.contains(name); });
}

}  // namespace headroom::models
