#include "headroom/weights/detail/safetensors_names.h"

#include <torch/nn/module.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "headroom/base/error.h"
#include "headroom/nn/layers.h"
#include "headroom/nn/module_path.h"
#include "headroom/nn/stacked_experts.h"
#include "headroom/weights/detail/safetensors_json.h"

namespace headroom::weights::detail {
namespace {

using at::Tensor;

// Finds the aliases of tied weights: the names under which other layers use a module's tensor.
class Aliases {
 public:
  explicit Aliases(State& state) : state_(state) {
    for (const Place& place : state.tensors)
      names_[place.parameter.unsafeGetTensorImpl()] = place.name;
  }

  void add(const torch::nn::Module& module, const std::string& path) {
    if (const auto* linear = dynamic_cast<const nn::Linear*>(&module)) {
      add_if_tied(linear->weight, nn::joined(path, "weight"));
      add_if_tied(linear->bias, nn::joined(path, "bias"));
    }
    for (const auto& child : module.named_children())
      add(*child.value(), nn::joined(path, child.key()));
  }

 private:
  void add_if_tied(const Tensor& tensor, const std::string& name) {
    const auto owner = tensor.defined() ? names_.find(tensor.unsafeGetTensorImpl()) : names_.end();
    if (owner != names_.end() && owner->second != name) state_.aliases[name] = owner->second;
  }

  State& state_;
  std::unordered_map<const c10::TensorImpl*, std::string> names_;
};

// Under the names that they have in checkpoints (nn/stacked_experts.h).
void add_experts(State& state, const torch::OrderedDict<std::string, Tensor>& parameters,
                 const std::string& path) {
  const Tensor &both = parameters["gate_up_proj"], &down = parameters["down_proj"];
  const std::int64_t inner = both.size(1) / 2, width = down.size(1);
  for (std::int64_t i = 0; i < both.size(0); ++i) {
    const std::string name = nn::joined(path, std::to_string(i));
    state.tensors.push_back({name + ".w1.weight", both, 2 * i * inner, inner});
    state.tensors.push_back({name + ".w2.weight", down, i * width, width});
    state.tensors.push_back({name + ".w3.weight", both, (2 * i + 1) * inner, inner});
  }
}

// Adds parameters and buffers module by module, in the order of Python's state_dict.
void add_own(State& state, const torch::nn::Module& module, const std::string& path) {
  if (dynamic_cast<const nn::StackedExperts*>(&module) != nullptr)
    return add_experts(state, module.named_parameters(false), path);
  const bool transposed = dynamic_cast<const nn::Conv1D*>(&module) != nullptr;
  for (const auto& parameter : module.named_parameters(false))
    state.tensors.push_back({.name = nn::joined(path, parameter.key()),
                             .parameter = parameter.value(),
                             .transposed = transposed && parameter.key() == "weight"});
  for (const auto& buffer : module.named_buffers(false)) {
    const std::string name = nn::joined(path, buffer.key());
    if (is_counter(name))
      state.tensors.push_back({.name = name, .parameter = buffer.value()});
    else
      state.fixed.insert(name);
  }
  for (const auto& child : module.named_children()) {
    // Adapters are not part of the hub's checkpoints; they are saved in files of their own.
    if (child.key() == "lora_A" || child.key() == "lora_B") continue;
    add_own(state, *child.value(), nn::joined(path, child.key()));
  }
}

// transformers' base_model_prefix: the name of the base model inside a model with a head.
std::string base_of(const std::string& model_type) {
  static const std::map<std::string, std::string> others = {
      {"gpt2", "transformer"}, {"gpt_neo", "transformer"}, {"t5", "transformer"},
      {"llama", "model"},      {"mistral", "model"},       {"qwen2", "model"},
      {"qwen3", "model"},      {"gemma", "model"},         {"gemma2", "model"},
      {"phi", "model"},        {"phi3", "model"},          {"mixtral", "model"},
      {"opt", "model"},
  };
  const auto other = others.find(model_type);
  return other == others.end() ? model_type : other->second;
}

// Tensors left over from older versions of the models, which are ignored.
bool is_relic(const std::string& name, const std::string& model_type) {
  const auto has = [&](std::string_view part) { return name.find(part) != std::string::npos; };
  if (model_type == "gpt_neox" && (has("attention.bias") || has("attention.masked_bias")))
    return true;
  if (model_type == "t5" &&
      has("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"))
    return true;
  // 4.57 has GPT-2's masks as buffers.
  if (model_type == "gpt2" && (name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias")))
    return true;
  return has("rotary_emb.inv_freq");
}

// Renames tensors of norms in models that came from TensorFlow.
std::string modern(std::string name) {
  const auto replace = [&](std::string_view old, std::string_view now) {
    if (name.ends_with(old)) name.replace(name.size() - old.size(), old.size(), now);
  };
  replace("LayerNorm.gamma", "LayerNorm.weight");
  replace("LayerNorm.beta", "LayerNorm.bias");
  return name;
}

bool any_begins_with(const std::vector<std::string>& names, const std::string& prefix) {
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return name.starts_with(prefix); });
}

// Translates the checkpoint's names to the model's.
class Renaming {
 public:
  Renaming(const std::vector<std::string>& names, const State& state, const std::string& type)
      : state_(state), prefix_(base_of(type) + ".") {
    for (const Place& place : state.tensors) own_.insert(place.name);
    const bool in_model = std::any_of(own_.begin(), own_.end(), [&](const std::string& name) {
      return name.starts_with(prefix_);
    });
    const bool in_file = any_begins_with(names, prefix_);
    adds_ = in_model && !in_file;
    takes_off_ = in_file && !in_model;
  }

  [[nodiscard]] std::string operator()(const std::string& stored) const {
    const std::string name = modern(stored);
    if (knows(name)) return name;
    if (adds_) return prefix_ + name;
    if (takes_off_ && name.starts_with(prefix_)) return name.substr(prefix_.size());
    return name;
  }
  [[nodiscard]] bool owns(const std::string& name) const { return own_.count(name) > 0; }

 private:
  [[nodiscard]] bool knows(const std::string& name) const {
    return owns(name) || state_.aliases.count(name) > 0;
  }

  const State& state_;
  const std::string prefix_;
  std::set<std::string> own_;
  bool adds_ = false, takes_off_ = false;
};

}  // namespace

bool is_counter(const std::string& name) {
  return name.ends_with("running_mean") || name.ends_with("running_var") ||
         name.ends_with("num_batches_tracked");
}

std::vector<std::int64_t> Place::sizes() const {
  return rows == 0 ? parameter.sizes().vec() : std::vector{rows, parameter.size(-1)};
}

Tensor Place::view() const {
  return rows == 0 ? parameter
                   : parameter.detach().view({-1, parameter.size(-1)}).narrow(0, first, rows);
}

State state_of(models::Model& model) {
  State state;
  add_own(state, model.module(), "");
  Aliases(state).add(model.module(), "");
  if (model.config().type() == "t5")
    for (const char* stack : {"encoder", "decoder"})
      state.aliases[nn::joined(stack, "embed_tokens.weight")] = "shared.weight";
  return state;
}

Match matched(const std::vector<std::string>& names, const State& state,
              const std::string& model_type, const std::string& source) {
  const Renaming renamed(names, state, model_type);
  Match match;
  std::map<std::string, std::size_t> by_alias;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::string name = renamed(names[i]);
    if (renamed.owns(name)) {
      const auto [before, is_first] = match.found.emplace(name, i);
      if (!is_first)
        throw InputError(
            expectation("safetensors", "one tensor for " + name + " in " + source,
                        in_quotes(names[before->second]) + " and " + in_quotes(names[i])));
    } else if (const auto alias = state.aliases.find(name); alias != state.aliases.end()) {
      by_alias.emplace(alias->second, i);
    } else if (state.fixed.count(name) == 0 && !is_relic(name, model_type)) {
      match.unexpected.push_back(names[i]);
    }
  }
  // If a tensor's own name and an alias are both there, its own name wins, as in transformers.
  match.found.merge(by_alias);
  for (const Place& place : state.tensors)
    if (match.found.count(place.name) == 0) match.missing.push_back(place.name);
  return match;
}

}  // namespace headroom::weights::detail
