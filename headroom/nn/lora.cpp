#include "headroom/nn/lora.h"

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include <cmath>

#include "headroom/base/error.h"
#include "headroom/libtorch/on.h"
#include "headroom/nn/detail/targets.h"
#include "headroom/nn/layers.h"

namespace headroom::nn {

// Beside one layer. Its two matrices are the layer's children; what the layer calls is this.
class Lora::Adapter {
 public:
  // `transposed`: the layer's weight is [in, out].
  Adapter(torch::nn::Module& layer, Tensor weight, bool transposed, const LoraOptions& options);

  Tensor operator()(const Tensor& x, Tensor result) const;
  void merge(bool into);

  [[nodiscard]] const Tensor& a() const { return a_->weight; }
  [[nodiscard]] const Tensor& b() const { return b_->weight; }
  [[nodiscard]] bool merged() const { return merged_; }

 private:
  [[nodiscard]] Tensor product() const;

  const Tensor weight_;
  const bool transposed_;
  const double dropout_, scaling_;
  std::shared_ptr<Linear> a_, b_;
  bool merged_ = false;
};

namespace {

using torch::nn::Module;

void check(const LoraOptions& options) {
  if (options.rank < 1)
    throw UsageError(expectation("add_lora", "a rank of 1 or more", std::to_string(options.rank)));
  if (!(options.dropout >= 0 && options.dropout < 1))
    throw UsageError(
        expectation("add_lora", "a dropout from 0 to below 1", std::to_string(options.dropout)));
  if (options.targets.empty()) throw UsageError(expectation("add_lora", "targets", "none", "q, v"));
}

bool is_half(at::ScalarType type) {
  return type == at::kHalf || type == at::kBFloat16;
}

}  // namespace

Lora::Adapter::Adapter(Module& layer, Tensor weight, bool transposed, const LoraOptions& options)
    : weight_(std::move(weight)),
      transposed_(transposed),
      dropout_(options.dropout),
      scaling_(options.alpha / static_cast<double>(options.rank)) {
  const std::int64_t in = weight_.size(transposed ? 0 : 1), out = weight_.size(transposed ? 1 : 0);
  const at::ScalarType type =
      options.float32 && is_half(weight_.scalar_type()) ? at::kFloat : weight_.scalar_type();
  libtorch::on(weight_.device(), type, [&] {
    a_ = layer.register_module("lora_A", std::make_shared<Linear>(in, options.rank, false));
    b_ = layer.register_module("lora_B", std::make_shared<Linear>(options.rank, out, false));
  });
  a_->train(layer.is_training());
  b_->train(layer.is_training());
  const at::NoGradGuard no_grad;
  const double bound = 1 / std::sqrt(static_cast<double>(in));  // kaiming_uniform_(a=sqrt(5))
  a_->weight.uniform_(-bound, bound);
  b_->weight.zero_();
}

// One operation a statement, and what Python binds stays bound: the input in the adapter's type,
// and the layer's own result until the sum is there.
Tensor Lora::Adapter::operator()(const Tensor& x, Tensor result) const {
  if (merged_) return result;
  const at::ScalarType type = result.scalar_type();
  const Tensor input = x.to(a_->weight.scalar_type());
  Tensor added = dropout_ > 0 ? at::dropout(input, dropout_, a_->is_training()) : input;
  added = (*a_)(added);
  added = (*b_)(added);
  added = added * scaling_;
  result = result + added;
  added.reset();
  return result.to(type);
}

Tensor Lora::Adapter::product() const {
  const bool in_float = weight_.is_cpu() && is_half(b().scalar_type());
  Tensor made =
      in_float ? at::matmul(b().to(at::kFloat), a().to(at::kFloat)) : at::matmul(b(), a());
  if (transposed_) made = made.t();
  made = made * scaling_;
  return made.to(weight_.scalar_type());
}

void Lora::Adapter::merge(bool into) {
  if (merged_ == into) return;
  const at::NoGradGuard no_grad;
  if (into)
    weight_.add_(product());
  else
    weight_.sub_(product());
  merged_ = into;
}

std::vector<std::string> Lora::layers() const {
  std::vector<std::string> names;
  for (const auto& [name, adapter] : adapters_) names.push_back(name);
  return names;
}

std::vector<std::pair<std::string, Tensor>> Lora::parameters() const {
  std::vector<std::pair<std::string, Tensor>> all;
  for (const auto& [name, adapter] : adapters_) {
    const std::string beginning = "base_model.model." + name;
    all.emplace_back(beginning + ".lora_A.weight", adapter->a());
    all.emplace_back(beginning + ".lora_B.weight", adapter->b());
  }
  return all;
}

void Lora::merge() {
  for (const auto& [name, adapter] : adapters_) adapter->merge(true);
}

void Lora::unmerge() {
  for (const auto& [name, adapter] : adapters_) adapter->merge(false);
}

bool Lora::merged() const {
  return !adapters_.empty() && adapters_.front().second->merged();
}

Lora add_lora(Module& model, const LoraOptions& options) {
  check(options);
  const auto targets = detail::chosen(detail::linear_layers(model), options.targets);
  for (const detail::Target& target : targets)
    if (*target.after)
      throw UsageError(expectation("add_lora", "layers without an adapter",
                                   target.path + ", which has one", "other targets"));
  for (Tensor& parameter : model.parameters()) parameter.set_requires_grad(false);
  Lora lora;
  for (const detail::Target& target : targets) {
    const auto adapter =
        std::make_shared<Lora::Adapter>(*target.layer, target.weight, target.transposed, options);
    *target.after = [adapter](const Tensor& x, Tensor result) {
      return (*adapter)(x, std::move(result));
    };
    lora.adapters_.emplace_back(target.path, adapter);
  }
  return lora;
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
    throw UsageError(expectation("require_input_gradients",
                                 "a model that begins with an nn::Embedding or an nn::Conv2d",
                                 model.name()));
  first_convolution->result_needs_gradient = true;
}

}  // namespace headroom::nn
