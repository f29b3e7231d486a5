// Gemma and Gemma-2 (modeling_gemma.py and modeling_gemma2.py of transformers).
#include <ATen/ATen.h>

#include <cmath>

#include "headroom/models/families/decoder.h"

namespace headroom::models::detail {
namespace gemma {
namespace {

using decoder::GatedMlp;
using decoder::Plan;
using decoder::SelfAttention;
using decoder::Shape;
using model::ModelConfig;

// Scales by 1 + weight, in float, and rounds the result afterwards.
class OffsetRmsNorm : public torch::nn::Module {
 public:
  OffsetRmsNorm(std::int64_t width, double epsilon)
      : weight_(register_parameter("weight", at::empty({width}))), epsilon_(epsilon) {}

  Tensor operator()(const Tensor& x) const {
    Tensor states = normalised(x.to(at::kFloat));
    Tensor scale = weight_.to(at::kFloat);
    scale = scale + 1.0;
    states = states * scale;
    scale.reset();
    return states.to(x.scalar_type());
  }

 private:
  [[nodiscard]] Tensor normalised(const Tensor& states) const {
    Tensor scale = states.pow(2);
    scale = scale.mean(-1, true);
    scale = scale + epsilon_;
    scale = at::rsqrt(scale);
    return states * scale;
  }

  const Tensor weight_;
  const double epsilon_;
};

using GemmaLayer = decoder::PlainLayer<OffsetRmsNorm, SelfAttention, GatedMlp>;

// Gemma-2 also has a norm after each block.
class SandwichLayer : public decoder::Layer {
 public:
  SandwichLayer(const Shape& shape, const nn::Activation& function)
      : attention_(child<SelfAttention>(*this, "self_attn", shape)),
        mlp_(child<GatedMlp>(*this, "mlp", shape, function)),
        before_attention_(norm("input_layernorm", shape)),
        after_attention_(norm("post_attention_layernorm", shape)),
        before_mlp_(norm("pre_feedforward_layernorm", shape)),
        after_mlp_(norm("post_feedforward_layernorm", shape)) {}

  Tensor operator()(Tensor states, const LayerInputs& with) const override {
    Tensor residual = states;
    states = (*before_attention_)(states);
    Attended seen = (*attention_)(states, with);
    states = std::move(seen.out);
    states = (*after_attention_)(states);
    states = residual + states;
    residual = states;
    states = (*before_mlp_)(states);
    states = (*mlp_)(states);
    states = (*after_mlp_)(states);
    return residual + states;
  }

 private:
  std::shared_ptr<OffsetRmsNorm> norm(const char* name, const Shape& shape) {
    return child<OffsetRmsNorm>(*this, name, shape.width, shape.epsilon);
  }

  const std::shared_ptr<SelfAttention> attention_;
  const std::shared_ptr<GatedMlp> mlp_;
  const std::shared_ptr<OffsetRmsNorm> before_attention_, after_attention_, before_mlp_, after_mlp_;
};

Plan gemma(const ModelConfig& config, Transformers) {
  const Shape shape(config);
  const nn::Activation function = nn::activation(shape.function);
  const auto layer = [shape, function] {
    return std::make_shared<GemmaLayer>(
        shape, [&] { return std::make_shared<GatedMlp>(shape, function); });
  };
  return {.shape = shape,
          .layer = layer,
          .norm = decoder::norm_like<OffsetRmsNorm>(shape),
          .scaled_embedding = true};
}

Plan gemma2(const ModelConfig& config, Transformers transformers) {
  const Shape shape(config);
  const nn::Activation function = nn::activation(shape.function);
  const auto layer = [shape, function] { return std::make_shared<SandwichLayer>(shape, function); };
  Plan plan = {.shape = shape,
               .layer = layer,
               .norm = decoder::norm_like<OffsetRmsNorm>(shape),
               .always_windowed_mask = true,
               .scaled_embedding = true};
  plan.head.logit_cap = shape.logit_cap;
  plan.head.cache_when_training = transformers == Transformers::v5;
  return plan;
}

}  // namespace
}  // namespace gemma

Build gemma_family() {
  return decoder::family([](const model::ModelConfig& config, Transformers transformers) {
    return (config.type() == "gemma" ? gemma::gemma : gemma::gemma2)(config, transformers);
  });
}

}  // namespace headroom::models::detail
