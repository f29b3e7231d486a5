#include "headroom/nn/detail/targets.h"

#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "headroom/base/error.h"
#include "headroom/base/text.h"
#include "headroom/libtorch/follow.h"
#include "headroom/nn/freeze.h"

namespace headroom::nn::detail {
namespace {

// The names that transformers' models use for the projections of attention.
const std::map<std::string, std::vector<std::string>, std::less<>>& words() {
  static const std::map<std::string, std::vector<std::string>, std::less<>> all = {
      {"q",
       {"q", "q_proj", "query", "q_lin", "c_attn", "query_key_value", "qkv_proj", "qkv", "Wqkv"}},
      {"k",
       {"k", "k_proj", "key", "k_lin", "c_attn", "query_key_value", "qkv_proj", "qkv", "Wqkv"}},
      {"v",
       {"v", "v_proj", "value", "v_lin", "c_attn", "query_key_value", "qkv_proj", "qkv", "Wqkv"}},
      {"o",
       {"o", "o_proj", "out_proj", "out_lin", "attn.c_proj", "attention.dense",
        "attention.output.dense", "self_attn.dense"}}};
  return all;
}

// On a mismatch, the last * takes one more character.
bool fits(std::string_view pattern, std::string_view text) {
  std::size_t p = 0, t = 0;
  std::size_t star = std::string_view::npos, taken = 0;
  while (t < text.size()) {
    if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t]) && pattern[p] != '*') {
      ++p, ++t;
    } else if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      taken = t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++taken;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

bool ends_with_name(std::string_view path, const std::string& name) {
  return path == name || path.ends_with("." + name);
}

bool matches(std::string_view path, const std::string& pattern) {
  if (pattern.find_first_of("*?") != std::string::npos) return fits(pattern, path);
  const auto word = words().find(pattern);
  if (word == words().end()) return ends_with_name(path, pattern);
  return std::any_of(word->second.begin(), word->second.end(),
                     [&](const std::string& name) { return ends_with_name(path, name); });
}

bool matches(const Target& layer, const std::string& pattern) {
  if (pattern != "all-linear") return matches(layer.path, pattern);
  return !in_head(layer.path) &&
         (layer.kind == Target::Kind::linear || layer.kind == Target::Kind::transposed);
}

// The last part of the path, with the part before it if the last is a number in a list.
std::string name_of(const std::string& path) {
  const std::size_t dot = path.rfind('.');
  if (dot == std::string::npos) return path;
  const std::string last = path.substr(dot + 1);
  return to_integer(last) ? name_of(path.substr(0, dot)) + "." + last : last;
}

std::string names_of(const std::vector<Target>& layers) {
  std::vector<std::string> names;
  for (const Target& layer : layers) {
    const std::string name = name_of(layer.path);
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return names.empty() ? "nothing: this model has no such layers" : join(names, ", ");
}

// An LSTM, say, is there and cannot have an adapter.
[[noreturn]] void refuse(const std::string& pattern, const torch::nn::Module& model,
                         const std::string& to_try) {
  for (const auto& item : model.named_modules("", false))
    if (matches(item.key(), pattern))
      throw UsageError(expectation("add_lora", "layers of a kind that can have adapters",
                                   item.key() + ", a " + item.value()->name(), to_try));
  throw UsageError(expectation("add_lora", "targets that the model has", pattern, to_try));
}

template <typename Layer>
void add(std::vector<Target>& layers, const std::string& path, torch::nn::Module* module,
         Target::Kind kind) {
  if (auto* const layer = dynamic_cast<Layer*>(module))
    layers.push_back({path, module, layer->weight, kind, nullptr});
}

template <typename Layer>
void add_own(std::vector<Target>& layers, const std::string& path, torch::nn::Module* module,
             Target::Kind kind) {
  if (auto* const layer = dynamic_cast<Layer*>(module))
    layers.push_back({path, module, layer->weight, kind, &layer->after});
}

}  // namespace

bool in_head(std::string_view path) {
  const std::string first(path.substr(0, path.find('.')));
  const std::vector<std::string>& heads = usual_heads();
  return std::find(heads.begin(), heads.end(), first) != heads.end();
}

bool Target::has_adapter() const {
  return after != nullptr ? static_cast<bool>(*after) : libtorch::is_followed(weight);
}

std::vector<Target> layers_with_weights(torch::nn::Module& model) {
  using Kind = Target::Kind;
  std::vector<Target> layers;
  for (const auto& item : model.named_modules("", false)) {
    torch::nn::Module* const module = item.value().get();
    add_own<Linear>(layers, item.key(), module, Kind::linear);
    add_own<Conv1D>(layers, item.key(), module, Kind::transposed);
    add<torch::nn::LinearImpl>(layers, item.key(), module, Kind::linear);
    add<torch::nn::Conv1dImpl>(layers, item.key(), module, Kind::convolution);
    add<torch::nn::Conv2dImpl>(layers, item.key(), module, Kind::convolution);
    add<torch::nn::EmbeddingImpl>(layers, item.key(), module, Kind::embedding);
  }
  return layers;
}

std::vector<Target> chosen(torch::nn::Module& model, const std::vector<std::string>& patterns) {
  const std::vector<Target> layers = layers_with_weights(model);
  for (const std::string& pattern : patterns)
    if (std::none_of(layers.begin(), layers.end(),
                     [&](const Target& layer) { return matches(layer, pattern); }))
      refuse(pattern, model, names_of(layers));
  std::vector<Target> targets;
  for (const Target& layer : layers)
    if (std::any_of(patterns.begin(), patterns.end(),
                    [&](const std::string& pattern) { return matches(layer, pattern); }))
      targets.push_back(layer);
  return targets;
}

}  // namespace headroom::nn::detail
