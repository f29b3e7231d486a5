#include "headroom/nn/lora.h"

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <optional>

#include "headroom/base/error.h"
#include "headroom/libtorch/autocast.h"
#include "headroom/libtorch/draws.h"
#include "headroom/libtorch/follow.h"
#include "headroom/libtorch/on.h"
#include "headroom/libtorch/stored_weight.h"
#include "headroom/nn/detail/checked_targets.h"
#include "headroom/nn/detail/widened_linear.h"
#include "headroom/nn/layers.h"

namespace headroom::nn {
namespace {

using detail::Target;
using Kind = Target::Kind;
using torch::nn::Module;
// Runs the layer's operator with another input and weight.
using Again = std::function<Tensor(const Tensor& x, const Tensor& weight)>;

// An adapter's parameters, as peft calls them below the layer.
constexpr const char *kA = "lora_A.weight", *kB = "lora_B.weight";
constexpr const char *kEmbeddingA = "lora_embedding_A", *kEmbeddingB = "lora_embedding_B";

// One of the two matrices, as a child module of the layer.
struct Factor : Module {
  explicit Factor(at::IntArrayRef sizes) : weight(register_parameter("weight", at::empty(sizes))) {}
  Tensor weight;
};

struct Sizes {
  std::vector<std::int64_t> a, b;
};

Sizes sizes_of(const Tensor& weight, Kind kind, std::int64_t rank) {
  std::vector<std::int64_t> a = weight.sizes().vec(), b(a.size(), 1);
  switch (kind) {
    case Kind::linear:
    case Kind::convolution:
      b[0] = std::exchange(a[0], rank);
      b[1] = rank;
      return {a, b};
    case Kind::transposed:
    case Kind::embedding:
      break;
  }
  return {{rank, a[0]}, {a[1], rank}};
}

Tensor linear(const Tensor& x, const Tensor& weight) {
  return at::linear(x, weight);
}

}  // namespace

// The adapter of one layer. Its two matrices are the layer's children, or an embedding's
// parameters; the layer calls operator() on its result.
class Lora::Adapter {
 public:
  Adapter(const Target& target, const LoraLayer& layer, const LoraOptions& options);

  Tensor operator()(const Tensor& x, Tensor result, const Again& again, bool is_scaled) const;
  void merge(const Tensor& weight, bool into);

  // Set by the weight's followers.
  std::atomic<bool> is_used = false, is_used_otherwise = false;

  [[nodiscard]] std::vector<std::pair<std::string, Tensor>> parameters() const;
  [[nodiscard]] bool merged() const { return merged_; }
  [[nodiscard]] Kind kind() const { return kind_; }

 private:
  void make_factors(Module& layer, const Sizes& sizes);
  void make_parameters(Module& layer, const Sizes& sizes);
  [[nodiscard]] Tensor product(const Tensor& weight) const;
  [[nodiscard]] Tensor expanded(const Tensor& small) const;
  [[nodiscard]] bool widens(const Tensor& x) const;

  // The weight owns the adapter that follows it, so the adapter has no pointer to the weight: even
  // a weak one would keep the weight's TensorImpl, and thereby the adapter, for ever.
  const Kind kind_;
  const double dropout_, scaling_;
  const bool keeps_input_once_;
  std::shared_ptr<Factor> factor_;  // holds a_; null for an embedding
  Tensor a_, b_;
  bool merged_ = false;
};

namespace {

void check(const LoraOptions& options) {
  if (!(options.dropout >= 0 && options.dropout < 1))
    throw UsageError(
        expectation("add_lora", "a dropout from 0 to below 1", std::to_string(options.dropout)));
}

std::string name_in_file(const std::string& layer, const std::string& parameter) {
  return "base_model.model." + layer + "." + parameter;
}

double scaling_of(const LoraLayer& layer, bool rank_stabilised) {
  const auto rank = static_cast<double>(layer.rank);
  return layer.alpha / (rank_stabilised ? std::sqrt(rank) : rank);
}

// A tied layer of headroom::nn uses a weight that another layer registers.
bool is_tied(const Target& target, const Module& model) {
  const auto uses = [&](const Module& module, bool below) {
    const std::vector<Tensor> all = module.parameters(below);
    return std::count_if(all.begin(), all.end(),
                         [&](const Tensor& each) { return each.is_same(target.weight); });
  };
  return uses(*target.layer, false) == 0 || uses(model, true) > 1;
}

libtorch::Use::Kind use_of(Kind kind) {
  if (kind == Kind::embedding) return libtorch::Use::Kind::embedding;
  return kind == Kind::convolution ? libtorch::Use::Kind::convolution : libtorch::Use::Kind::linear;
}

template <typename Adapter>
void install(const Target& target, const std::shared_ptr<Adapter>& adapter) {
  if (target.after != nullptr)
    *target.after = [adapter](const Tensor& x, Tensor result) {
      return (*adapter)(x, std::move(result), linear, /*is_scaled=*/false);
    };
  else
    libtorch::follow(
        target.weight,
        [adapter, kind = use_of(target.kind)](const libtorch::Use& use, Tensor result) {
          (use.kind == kind ? adapter->is_used : adapter->is_used_otherwise) = true;
          return use.kind == kind
                     ? (*adapter)(use.input, std::move(result), use.again, use.is_scaled)
                     : result;
        },
        [adapter] { adapter->is_used_otherwise = true; });
}

}  // namespace

Lora::Adapter::Adapter(const Target& target, const LoraLayer& layer, const LoraOptions& options)
    : kind_(target.kind),
      dropout_(options.dropout),
      scaling_(scaling_of(layer, options.rank_stabilised)),
      keeps_input_once_(options.keeps_input_once) {
  const Tensor& weight = target.weight;
  const at::ScalarType type = options.float32 && at::isReducedFloatingType(weight.scalar_type())
                                  ? at::kFloat
                                  : weight.scalar_type();
  const Sizes sizes = sizes_of(weight, kind_, layer.rank);
  libtorch::on(weight.device(), type, [&] {
    kind_ == Kind::embedding ? make_parameters(*target.layer, sizes)
                             : make_factors(*target.layer, sizes);
  });
}

void Lora::Adapter::make_factors(Module& layer, const Sizes& sizes) {
  factor_ = layer.register_module("lora_A", std::make_shared<Factor>(sizes.a));
  const auto other = layer.register_module("lora_B", std::make_shared<Factor>(sizes.b));
  factor_->train(layer.is_training());
  other->train(layer.is_training());
  a_ = factor_->weight;
  b_ = other->weight;
  const at::NoGradGuard no_grad;
  const double inputs = static_cast<double>(a_.numel() / a_.size(0));
  const double bound = 1 / std::sqrt(inputs);  // kaiming_uniform_(a=sqrt(5))
  a_.uniform_(-bound, bound);
  b_.zero_();
}

void Lora::Adapter::make_parameters(Module& layer, const Sizes& sizes) {
  a_ = layer.register_parameter(kEmbeddingA, at::empty(sizes.a));
  b_ = layer.register_parameter(kEmbeddingB, at::empty(sizes.b));
  const at::NoGradGuard no_grad;
  a_.zero_();
  b_.normal_();
}

// Applies the second matrix to the output of the first.
Tensor Lora::Adapter::expanded(const Tensor& small) const {
  if (b_.dim() == 4) return at::conv2d(small, b_);
  return b_.dim() == 3 ? at::conv1d(small, b_) : at::linear(small, b_);
}

// Whether to cast the input of a linear layer again in the backward pass.
bool Lora::Adapter::widens(const Tensor& x) const {
  if (!keeps_input_once_ || x.scalar_type() == a_.scalar_type() || !x.is_floating_point())
    return false;
  const bool is_linear = kind_ == Kind::linear || kind_ == Kind::transposed;
  const bool drops = dropout_ > 0 && factor_->is_training();
  return is_linear && !drops && !libtorch::autocasts(x.device().type());
}

// One operation a statement, and the lifetimes of Python's variables: the input in the adapter's
// type and the layer's own result live until the sum is computed.
Tensor Lora::Adapter::operator()(const Tensor& x, Tensor result, const Again& again,
                                 bool is_scaled) const {
  if (merged_) return result;
  const at::ScalarType type = result.scalar_type();
  const bool looks_up = kind_ == Kind::embedding, widened = !is_scaled && widens(x);
  const Tensor input = looks_up || widened ? x : x.to(a_.scalar_type());
  Tensor added =
      dropout_ > 0 && !looks_up ? at::dropout(input, dropout_, factor_->is_training()) : input;
  added = widened ? detail::widened_linear(added, a_) : again(added, looks_up ? a_.t() : a_);
  added = expanded(added);
  added = added * scaling_;
  result = result + added;
  added.reset();
  return result.to(type);
}

Tensor Lora::Adapter::product(const Tensor& weight) const {
  const bool in_float = weight.is_cpu() && at::isReducedFloatingType(b_.scalar_type());
  const auto matrix = [&](const Tensor& factor) {
    const Tensor flat = factor.flatten(1);
    return in_float ? flat.to(at::kFloat) : flat;
  };
  Tensor made = at::matmul(matrix(b_), matrix(a_));
  if (kind_ == Kind::transposed || kind_ == Kind::embedding) made = made.t();
  made = made * scaling_;
  return made.to(weight.scalar_type()).view(weight.sizes());
}

void Lora::Adapter::merge(const Tensor& weight, bool into) {
  if (merged_ == into) return;
  const at::NoGradGuard no_grad;
  if (into)
    weight.add_(product(weight));
  else
    weight.sub_(product(weight));
  merged_ = into;
}

std::vector<std::pair<std::string, Tensor>> Lora::Adapter::parameters() const {
  if (kind_ == Kind::embedding) return {{kEmbeddingA, a_}, {kEmbeddingB, b_}};
  return {{kA, a_}, {kB, b_}};
}

Lora Lora::joined(const std::vector<Lora>& parts) {
  Lora all;
  for (const Lora& part : parts) {
    all.options_ = part.options_;
    for (const Layer& layer : part.layers_)  // a tied one is in two parts
      if (std::none_of(all.layers_.begin(), all.layers_.end(), [&](const Layer& one) {
            return one.described.name == layer.described.name;
          }))
        all.layers_.push_back(layer);
    for (const std::string& name : part.others_)
      if (std::find(all.others_.begin(), all.others_.end(), name) == all.others_.end())
        all.others_.push_back(name);
  }
  for (const Layer& layer : all.layers_) std::erase(all.others_, layer.described.name);
  return all;
}

std::vector<std::string> Lora::layers() const {
  std::vector<std::string> names;
  for (const Layer& layer : layers_) names.push_back(layer.described.name);
  return names;
}

std::vector<LoraLayer> Lora::adapters() const {
  std::vector<LoraLayer> all;
  for (const Layer& layer : layers_) all.push_back(layer.described);
  return all;
}

bool Lora::has_conv1d() const {
  return std::any_of(layers_.begin(), layers_.end(),
                     [](const Layer& layer) { return layer.adapter->kind() == Kind::transposed; });
}

std::vector<std::pair<std::string, Tensor>> Lora::parameters() const {
  std::vector<std::pair<std::string, Tensor>> all;
  for (const Layer& layer : layers_) {
    for (const auto& [own, tensor] : layer.adapter->parameters())
      all.emplace_back(name_in_file(layer.described.name, own), tensor);
  }
  return all;
}

void Lora::check_weight(const Layer& layer) {
  const Tensor weight(layer.weight.lock());
  if (weight.defined() && libtorch::store_of(weight) != nullptr)
    throw UsageError(expectation("Lora::merge", "weights in full precision",
                                 layer.described.name + ", whose weight is quantised",
                                 "saving the adapter, and merging it into the full weights"));
}

void Lora::check_uses(const Layer& layer) {
  const Adapter& adapter = *layer.adapter;
  const std::string& name = layer.described.name;
  if (layer.is_tied || adapter.is_used_otherwise)
    throw UsageError(expectation(
        "Lora::merge", "layers whose weights nothing else uses",
        name + ", whose weight is used by " +
            (layer.is_tied ? "another layer" : "another operator of forward()") + ", too",
        "adapters on other layers"));
  if (layer.is_followed && adapter.kind() == Kind::embedding && !adapter.is_used)
    throw UsageError(
        expectation("Lora::merge",
                    "a forward pass since add_lora, which shows whether a head uses an embedding",
                    name + ", not used yet", "running the model once before merge()"));
}

void Lora::merge(bool into) {
  for (const Layer& layer : layers_)
    if (layer.adapter->merged() != into) check_weight(layer);
  for (const Layer& layer : layers_)
    if (into && !layer.adapter->merged()) check_uses(layer);
  for (const Layer& layer : layers_) {
    const Tensor weight(layer.weight.lock());
    if (!weight.defined())
      throw UsageError(expectation("Lora::merge", "the model that the adapters were added to",
                                   "one that is gone", "keeping the model"));
    layer.adapter->merge(weight, into);
  }
}

void Lora::merge() {
  merge(true);
}

void Lora::unmerge() {
  merge(false);
}

bool Lora::merged() const {
  return !layers_.empty() && layers_.front().adapter->merged();
}

Lora add_lora(Module& model, const LoraOptions& options) {
  std::vector<LoraLayer> layers;
  if (!options.targets.empty())
    for (const std::string& name : lora_layers(model, options.targets))
      layers.push_back({.name = name, .rank = options.rank, .alpha = options.alpha});
  return add_lora_to(model, layers, options);
}

Lora add_lora_to(Module& model, const std::vector<LoraLayer>& layers, const LoraOptions& options) {
  check(options);
  if (layers.empty() && !options.is_part)
    throw UsageError(expectation("add_lora", "targets", "none", "q, v"));
  const std::vector<Target> targets = detail::checked_targets(model, layers);
  Lora lora;
  lora.options_ = options;
  for (const auto& item : model.named_modules("", false))
    if (std::none_of(layers.begin(), layers.end(),
                     [&](const LoraLayer& layer) { return layer.name == item.key(); }))
      lora.others_.push_back(item.key());
  for (Tensor& parameter : model.parameters()) parameter.set_requires_grad(false);
  std::optional<libtorch::Draws> draws;
  if (!targets.empty()) draws.emplace(targets.front().weight.device());
  for (std::size_t i = 0; i < targets.size(); ++i) {
    if (draws) draws->begin(layers[i].name);
    const auto adapter = std::make_shared<Lora::Adapter>(targets[i], layers[i], options);
    install(targets[i], adapter);
    lora.layers_.push_back(
        {.described = layers[i],
         .adapter = adapter,
         .is_tied = is_tied(targets[i], model),
         .is_followed = targets[i].after == nullptr,
         .weight = decltype(Lora::Layer::weight)(targets[i].weight.getIntrusivePtr())});
  }
  return lora;
}

std::vector<std::string> lora_layers(Module& model, const std::vector<std::string>& patterns) {
  std::vector<std::string> names;
  for (const Target& target : detail::chosen(model, patterns)) names.push_back(target.path);
  return names;
}

std::vector<std::pair<std::string, std::vector<std::int64_t>>> lora_sizes(
    Module& model, const std::vector<LoraLayer>& layers) {
  std::vector<std::pair<std::string, std::vector<std::int64_t>>> all;
  const std::vector<Target> targets = detail::checked_targets(model, layers);
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const Sizes sizes = sizes_of(targets[i].weight, targets[i].kind, layers[i].rank);
    const bool table = targets[i].kind == Kind::embedding;
    all.emplace_back(name_in_file(layers[i].name, table ? kEmbeddingA : kA), sizes.a);
    all.emplace_back(name_in_file(layers[i].name, table ? kEmbeddingB : kB), sizes.b);
  }
  return all;
}

void require_input_gradients(Module& model) {
  Conv2d* first_convolution = nullptr;
  for (const auto& module : model.modules(false)) {
    if (auto* const embedding = dynamic_cast<Embedding*>(module.get())) {
      embedding->result_needs_gradient = true;
      return;
    }
    if (first_convolution == nullptr) first_convolution = dynamic_cast<Conv2d*>(module.get());
  }
  if (first_convolution == nullptr)
    throw UsageError(expectation(
        "require_input_gradients",
        "a model that begins with an Embedding or a Conv2d of headroom::nn", model.name()));
  first_convolution->result_needs_gradient = true;
}

}  // namespace headroom::nn
