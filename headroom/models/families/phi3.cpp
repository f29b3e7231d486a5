// Phi-3 (modeling_phi3.py of transformers): Llama's decoder with fused projections.
#include <ATen/ATen.h>

#include "headroom/models/families/decoder.h"

namespace headroom::models::detail {
namespace phi3 {
namespace {

using decoder::Plan;
using decoder::Shape;
using model::ModelConfig;
using nn::Linear;

class JoinedAttention : public torch::nn::Module {
 public:
  explicit JoinedAttention(const Shape& shape)
      : shape_(shape),
        out_(child<Linear>(*this, "o_proj", shape.heads * shape.head_width, shape.width, false)),
        qkv_(child<Linear>(*this, "qkv_proj", shape.width,
                           (shape.heads + 2 * shape.key_heads) * shape.head_width, false)) {}

  Attended operator()(const Tensor& states, const LayerInputs& with) const {
    const Tensor joined = (*qkv_)(states);
    const std::int64_t keys_from = shape_.heads * shape_.head_width,
                       values_from = keys_from + shape_.key_heads * shape_.head_width;
    Tensor q = heads_of(joined.slice(-1, 0, keys_from), shape_.head_width);
    Tensor k = heads_of(joined.slice(-1, keys_from, values_from), shape_.head_width);
    Tensor v = heads_of(joined.slice(-1, values_from), shape_.head_width);
    std::tie(q, k) =  // braces fix the order
        std::pair{partly_turned(q, with.rotation), partly_turned(k, with.rotation)};
    Attended seen = decoder::attended_heads(shape_, is_training(), q, k, v, with);
    seen.out = (*out_)(seen.out);
    return seen;
  }

 private:
  const Shape shape_;
  const std::shared_ptr<Linear> out_, qkv_;
};

class JoinedMlp : public torch::nn::Module {
 public:
  JoinedMlp(const Shape& shape, nn::Activation activation)
      : gate_up_(child<Linear>(*this, "gate_up_proj", shape.width, 2 * shape.inner, false)),
        down_(child<Linear>(*this, "down_proj", shape.inner, shape.width, false)),
        activation_(std::move(activation)) {}

  Tensor operator()(const Tensor& x, const LayerInputs&) const {
    const std::vector<Tensor> halves = (*gate_up_)(x).chunk(2, -1);
    Tensor gate = activation_(halves[0]);
    const Tensor inner = halves[1] * gate;
    gate.reset();
    return (*down_)(inner);
  }

 private:
  const std::shared_ptr<Linear> gate_up_, down_;
  const nn::Activation activation_;
};

using Layer = decoder::PlainLayer<nn::RmsNorm, JoinedAttention, JoinedMlp>;

Plan plan(const ModelConfig& config, Transformers) {
  const Shape shape(config);
  const nn::Activation function = nn::activation(shape.function);
  const auto layer = [=] {
    return std::make_shared<Layer>(
        shape, [&] { return std::make_shared<JoinedMlp>(shape, function); }, "mlp",
        shape.residual_dropout);
  };
  return {.shape = shape, .layer = layer, .norm = decoder::norm_like<nn::RmsNorm>(shape)};
}

}  // namespace
}  // namespace phi3

Build phi3_family() {
  return decoder::family(phi3::plan);
}

}  // namespace headroom::models::detail
