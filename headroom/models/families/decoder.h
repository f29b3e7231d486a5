// The decoder that Llama and its successors share (Mistral, Qwen, Gemma, Phi-3, Mixtral): token
// embeddings, layers of attention with rotary positions, a final norm, and a head. A family
// describes its differences in a Plan, usually its layers.
//
// Python frees a temporary after the operation that used it. So each statement runs one operation
// where that matters, and variables are rebound where Python rebinds them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "headroom/model/shapes.h"
#include "headroom/models/detail/decoder_heads.h"

namespace headroom::models::detail::decoder {

using model::ModelConfig;

using Shape = model::LlamaShape;

class Layer : public torch::nn::Module {
 public:
  virtual Tensor operator()(Tensor states, const LayerInputs& with) const = 0;
};

class SelfAttention : public torch::nn::Module {
 public:
  explicit SelfAttention(const Shape& shape);
  Attended operator()(const Tensor& states, const LayerInputs& with) const;

 private:
  Tensor heads(const nn::Linear& projection, const nn::RmsNorm* norm, const Tensor& states) const;

  const Shape shape_;
  const std::shared_ptr<nn::Linear> q_, k_, v_, out_;
  std::shared_ptr<nn::RmsNorm> q_norm_, k_norm_;
};

// Attention over rotated queries and keys, without the output projection.
[[nodiscard]] Attended attended_heads(const Shape& shape, bool training, const Tensor& q, Tensor& k,
                                      Tensor& v, const LayerInputs& with);

class GatedMlp : public torch::nn::Module {
 public:
  // Experts have other names for the three projections.
  struct Names {
    const char *gate = "gate_proj", *up = "up_proj", *down = "down_proj";
    bool down_is_second = false;  // in the order of parameters
  };
  GatedMlp(const Shape& shape, Function activation) : GatedMlp(shape, activation, Names()) {}
  GatedMlp(const Shape& shape, Function activation, const Names& names);
  Tensor operator()(const Tensor& x) const;
  Tensor operator()(const Tensor& x, const LayerInputs&) const { return (*this)(x); }

 private:
  std::shared_ptr<nn::Linear> gate_, up_, down_;
  const Function activation_;
};

// Attention and an inner block, each with a norm before it and a residual connection around it.
template <typename Norm, typename Attending, typename Inner>
class PlainLayer : public Layer {
 public:
  // `make_inner` is called after the attention is made, in the order of Python's modules.
  template <typename MakeInner>
  PlainLayer(const Shape& shape, const MakeInner& make_inner, const char* inner_name = "mlp",
             double dropout = 0)
      : attention_(child<Attending>(*this, "self_attn", shape)),
        inner_(register_module(inner_name, std::shared_ptr<Inner>(make_inner()))),
        input_norm_(child<Norm>(*this, "input_layernorm", shape.width, shape.epsilon)),
        inner_norm_(child<Norm>(*this, "post_attention_layernorm", shape.width, shape.epsilon)),
        dropout_(dropout) {}

  Tensor operator()(Tensor states, const LayerInputs& with) const override {
    Tensor residual = states;
    states = (*input_norm_)(states);
    Attended seen = (*attention_)(states, with);
    states = std::move(seen.out);
    states = residual + at::dropout(states, dropout_, is_training());
    residual = states;
    states = (*inner_norm_)(states);
    states = (*inner_)(states, with);
    return residual + at::dropout(states, dropout_, is_training());
  }

 private:
  const std::shared_ptr<Attending> attention_;
  const std::shared_ptr<Inner> inner_;
  const std::shared_ptr<Norm> input_norm_, inner_norm_;
  const double dropout_;
};

// The parts of a model that differ between families.
struct Plan {
  Shape shape;
  std::function<std::shared_ptr<Layer>()> layer;
  // Registers the final norm as a child of the decoder, and returns its function.
  std::function<Function(torch::nn::Module& of, const std::string& name)> norm;
  bool always_windowed_mask = false;  // makes this mask even if no layer uses it
  bool scaled_embedding = false;      // Gemma: times the square root of the width
  HeadOptions head = {.decoder = "model", .head = "lm_head"};
};

// For final norms that need only width and epsilon.
template <typename Norm>
[[nodiscard]] auto norm_like(const Shape& shape) {
  return [width = shape.width, epsilon = shape.epsilon](torch::nn::Module& of,
                                                        const std::string& name) -> Function {
    return [norm = child<Norm>(of, name, width, epsilon)](const Tensor& x) { return (*norm)(x); };
  };
}

// A family with heads for the next token and for sequence classification.
[[nodiscard]] Build family(std::function<Plan(const ModelConfig&, Transformers)> plan_of);

}  // namespace headroom::models::detail::decoder
