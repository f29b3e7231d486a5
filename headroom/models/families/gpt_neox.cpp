// GPT-NeoX and Pythia (modeling_gpt_neox.py of transformers).
//
// Where it matters, each statement runs one operation, and variables live as long as in Python: see
// families/decoder.h.
#include <ATen/ATen.h>

#include <cmath>

#include "headroom/model/shapes.h"
#include "headroom/models/detail/decoder_heads.h"
#include "headroom/models/detail/masks.h"

namespace headroom::models::detail {
namespace gpt_neox {
namespace {

using model::ModelConfig;
using nn::LayerNorm;
using nn::Linear;

using Shape = model::GptNeoXShape;

class SelfAttention : public torch::nn::Module {
 public:
  explicit SelfAttention(const Shape& shape)
      : shape_(shape),
        qkv_(
            child<Linear>(*this, "query_key_value", shape.width, 3 * shape.width, shape.with_bias)),
        out_(child<Linear>(*this, "dense", shape.width, shape.width, shape.with_bias)) {}

  Attended operator()(const Tensor& states, const LayerInputs& with) const {
    const std::int64_t rows = states.size(0), length = states.size(1);
    const Tensor qkv =
        (*qkv_)(states).view({rows, length, -1, 3 * shape_.head_width}).transpose(1, 2);
    const std::vector<Tensor> parts = qkv.chunk(3, -1);
    const auto [q, rotated_keys] = rotated_parts(parts[0], parts[1], with.rotation);
    Tensor k = rotated_keys, v = parts[2];
    keep(with.cache, k, v);
    AttentionOptions options;
    options.dropout = is_training() ? shape_.attention_dropout : 0;
    options.scaling = std::pow(static_cast<double>(shape_.head_width), -0.5);
    Attended attended = detail::attended(with.attention, q, k, v, with.mask, options);
    Tensor& out = attended.out;
    out = out.reshape({rows, length, -1}).contiguous();
    out = (*out_)(out);
    return attended;
  }

 private:
  // Rotates the first part of each head; the rest stays.
  [[nodiscard]] std::pair<Tensor, Tensor> rotated_parts(const Tensor& q, const Tensor& k,
                                                        const CosSin& rotation) const {
    const std::int64_t part = shape_.rope.width;
    Tensor queries = rotated(q.slice(-1, 0, part), rotation);
    Tensor keys = rotated(k.slice(-1, 0, part), rotation);
    queries = at::cat({queries, q.slice(-1, part)}, -1);
    keys = at::cat({keys, k.slice(-1, part)}, -1);
    return {queries, keys};
  }

  const Shape shape_;
  const std::shared_ptr<Linear> qkv_, out_;
};

class Layer : public torch::nn::Module {
 public:
  Layer(const Shape& shape, const nn::Activation& activation)
      : parallel_(shape.parallel),
        dropout_(shape.hidden_dropout),
        input_norm_(child<LayerNorm>(*this, "input_layernorm", shape.width, shape.epsilon)),
        inner_norm_(
            child<LayerNorm>(*this, "post_attention_layernorm", shape.width, shape.epsilon)),
        attention_(child<SelfAttention>(*this, "attention", shape)),
        mlp_(child<Mlp<Linear>>(*this, "mlp", "dense_h_to_4h", "dense_4h_to_h", shape.width,
                                shape.inner, activation)) {}

  Tensor operator()(const Tensor& states, const LayerInputs& with) const {
    Attended attended = (*attention_)((*input_norm_)(states), with);
    attended.out = at::dropout(attended.out, dropout_, is_training());
    if (!parallel_) attended.out = attended.out + states;
    Tensor inner = (*mlp_)((*inner_norm_)(parallel_ ? states : attended.out));
    inner = at::dropout(inner, dropout_, is_training());
    const Tensor sum = inner + attended.out;
    return parallel_ ? sum + states : sum;
  }

 private:
  const bool parallel_;
  const double dropout_;
  const std::shared_ptr<LayerNorm> input_norm_, inner_norm_;
  const std::shared_ptr<SelfAttention> attention_;
  const std::shared_ptr<Mlp<Linear>> mlp_;
};

class GptNeoX : public Decoder {
 public:
  GptNeoX(const ModelConfig& config, Transformers transformers, const Here& here)
      : shape_(config),
        tokens_(here.words(*this, "embed_in", shape_.vocabulary, shape_.width)),
        layers_(child<nn::List<Layer>>(*this, "layers")),
        norm_(here.ends()
                  ? child<LayerNorm>(*this, "final_layer_norm", shape_.width, shape_.epsilon)
                  : nullptr),
        rotary_(child<Rotary>(*this, "rotary_emb", shape_.rope, transformers)) {
    const nn::Activation function = nn::activation(shape_.function);
    for (std::int64_t i = 0; i < shape_.layers; ++i)
      here.add(*layers_, i, [&] { return std::make_shared<Layer>(shape_, function); });
  }

  Tensor operator()(const Batch& batch, const Net& net, const LayerInputs& given) const override {
    const bool begins = net.here().begins();
    const Tensor embedded = begins ? (*tokens_)(batch.tokens) : batch.given.at(0);
    const Tensor positions = at::arange(batch.tokens.size(1), batch.tokens.options());
    auto with = std::make_shared<LayerInputs>(given);
    with->positions = positions;
    with->mask = causal_mask(batch, positions, given.mask_options(embedded.scalar_type()));
    Tensor states = begins ? at::dropout(embedded, shape_.hidden_dropout, is_training()) : embedded;
    with->rotation = (*rotary_)(positions.unsqueeze(0), states.scalar_type());
    states = through_layers(net, *layers_, with, std::move(states));
    return net.here().ends() ? (*norm_)(states) : states;
  }

  [[nodiscard]] const Tensor& embedding() const override { return tokens_->weight; }

 private:
  const Shape shape_;
  const std::shared_ptr<nn::Embedding> tokens_;
  const std::shared_ptr<nn::List<Layer>> layers_;
  const std::shared_ptr<LayerNorm> norm_;
  const std::shared_ptr<Rotary> rotary_;
};

}  // namespace
}  // namespace gpt_neox

Build gpt_neox_family() {
  return decoder_family<gpt_neox::GptNeoX>({.decoder = "gpt_neox", .head = "embed_out"});
}

}  // namespace headroom::models::detail
