// Phi-1 to Phi-2 (modeling_phi.py of transformers).
//
// Where it matters, each statement runs one operation, and variables live as long as in Python: see
// families/decoder.h.
#include <ATen/ATen.h>

#include <cmath>

#include "headroom/model/shapes.h"
#include "headroom/models/detail/decoder_heads.h"
#include "headroom/models/detail/masks.h"

namespace headroom::models::detail {
namespace phi {
namespace {

using model::ModelConfig;
using nn::LayerNorm;
using nn::Linear;

using Shape = model::PhiShape;

class SelfAttention : public torch::nn::Module {
 public:
  explicit SelfAttention(const Shape& shape)
      : shape_(shape),
        q_(child<Linear>(*this, "q_proj", shape.width, shape.heads * shape.head_width)),
        k_(child<Linear>(*this, "k_proj", shape.width, shape.key_heads * shape.head_width)),
        v_(child<Linear>(*this, "v_proj", shape.width, shape.key_heads * shape.head_width)),
        out_(child<Linear>(*this, "dense", shape.heads * shape.head_width, shape.width)) {
    if (!shape.normalised_heads) return;
    q_norm_ = child<LayerNorm>(*this, "q_layernorm", shape.head_width, shape.epsilon);
    k_norm_ = child<LayerNorm>(*this, "k_layernorm", shape.head_width, shape.epsilon);
  }

  Attended operator()(const Tensor& states, const LayerInputs& with) const {
    Tensor q = heads_of((*q_)(states), shape_.head_width);
    Tensor k = heads_of((*k_)(states), shape_.head_width);
    Tensor v = heads_of((*v_)(states), shape_.head_width);
    if (q_norm_) q = (*q_norm_)(q);
    if (k_norm_) k = (*k_norm_)(k);
    const std::int64_t part = shape_.rope.width;
    const Tensor rest_of_q = q.slice(-1, part), rest_of_k = k.slice(-1, part);
    const Tensor rotated_q = rotated(q.slice(-1, 0, part), with.rotation);
    const Tensor rotated_k = rotated(k.slice(-1, 0, part), with.rotation);
    q = at::cat({rotated_q, rest_of_q}, -1);
    k = at::cat({rotated_k, rest_of_k}, -1);
    keep(with.cache, k, v);
    Attended attended = detail::attended(with.attention, q, k, v, with.mask, options());
    Tensor& out = attended.out;
    out = out.reshape({states.size(0), states.size(1), -1}).contiguous();
    out = (*out_)(out);
    return attended;
  }

 private:
  [[nodiscard]] AttentionOptions options() const {
    AttentionOptions options;
    options.dropout = is_training() ? shape_.attention_dropout : 0;
    options.scaling = std::pow(static_cast<double>(shape_.head_width), -0.5);
    options.groups = shape_.heads / shape_.key_heads;
    return options;
  }

  const Shape shape_;
  const std::shared_ptr<Linear> q_, k_, v_, out_;
  std::shared_ptr<LayerNorm> q_norm_, k_norm_;
};

// Attention and perceptron run in parallel on the same normalised states.
class DecoderLayer : public torch::nn::Module {
 public:
  DecoderLayer(const Shape& shape, const nn::Activation& activation)
      : attention_(child<SelfAttention>(*this, "self_attn", shape)),
        mlp_(child<Mlp<Linear>>(*this, "mlp", "fc1", "fc2", shape.width, shape.inner, activation)),
        norm_(child<LayerNorm>(*this, "input_layernorm", shape.width, shape.epsilon)),
        dropout_(shape.residual_dropout) {}

  Tensor operator()(const Tensor& residual, const LayerInputs& with) const {
    const Tensor states = (*norm_)(residual);
    Attended attended = (*attention_)(states, with);
    attended.out = at::dropout(attended.out, dropout_, is_training());
    Tensor inner = (*mlp_)(states);
    inner = at::dropout(inner, dropout_, is_training());
    const Tensor sum = attended.out + inner;
    return sum + residual;
  }

 private:
  const std::shared_ptr<SelfAttention> attention_;
  const std::shared_ptr<Mlp<Linear>> mlp_;
  const std::shared_ptr<LayerNorm> norm_;
  const double dropout_;
};

class Phi : public Decoder {
 public:
  Phi(const ModelConfig& config, Transformers transformers, const Here& here)
      : shape_(config),
        tokens_(here.words(*this, "embed_tokens", shape_.vocabulary, shape_.width, shape_.padding)),
        layers_(child<nn::List<DecoderLayer>>(*this, "layers")),
        rotary_(child<Rotary>(*this, "rotary_emb", shape_.rope, transformers)),
        norm_(here.ends() ? child<LayerNorm>(*this, "final_layernorm", shape_.width, shape_.epsilon)
                          : nullptr) {
    const nn::Activation function = nn::activation(shape_.function);
    for (std::int64_t i = 0; i < shape_.layers; ++i)
      here.add(*layers_, i, [&] { return std::make_shared<DecoderLayer>(shape_, function); });
  }

  Tensor operator()(const Batch& batch, const Net& net, const LayerInputs& given) const override {
    const bool begins = net.here().begins();
    Tensor embedded = begins ? (*tokens_)(batch.tokens) : batch.given.at(0);
    const Tensor positions = at::arange(batch.tokens.size(1), batch.tokens.options());
    auto with = std::make_shared<LayerInputs>(given);
    with->positions = positions;
    with->mask = causal_mask(batch, positions, given.mask_options(embedded.scalar_type()));
    if (begins) embedded = at::dropout(embedded, shape_.embedding_dropout, is_training());
    with->rotation = (*rotary_)(positions.unsqueeze(0), embedded.scalar_type());
    const Tensor states = through_layers(net, *layers_, with, embedded);
    return net.here().ends() ? (*norm_)(states) : states;
  }

  [[nodiscard]] const Tensor& embedding() const override { return tokens_->weight; }

 private:
  const Shape shape_;
  const std::shared_ptr<nn::Embedding> tokens_;
  const std::shared_ptr<nn::List<DecoderLayer>> layers_;
  const std::shared_ptr<Rotary> rotary_;
  const std::shared_ptr<LayerNorm> norm_;
};

}  // namespace
}  // namespace phi

Build phi_family() {
  return decoder_family<phi::Phi>({.decoder = "model", .head = "lm_head", .with_bias = true});
}

}  // namespace headroom::models::detail
