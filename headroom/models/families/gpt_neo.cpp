// GPT-Neo (modeling_gpt_neo.py of transformers). It has only the eager form of attention, which
// transformers uses by default, so both settings run it. Every second layer sees a window. Each
// layer has a buffer of the squared maximum length for the positions that its tokens see.
//
// Where it matters, each statement runs one operation, and variables live as long as in Python: see
// families/decoder.h.
#include <ATen/ATen.h>

#include <nlohmann/json.hpp>

#include "headroom/model/shapes.h"
#include "headroom/models/detail/decoder_heads.h"
#include "headroom/models/detail/older_masks.h"

namespace headroom::models::detail {
namespace gpt_neo {
namespace {

using model::ModelConfig;
using nn::LayerNorm;
using nn::Linear;

using Shape = model::GptNeoShape;

class SelfAttention : public torch::nn::Module {
 public:
  SelfAttention(const Shape& shape, bool windowed)
      : shape_(shape),
        seen_(register_buffer("bias", seen(shape, windowed))),
        k_(child<Linear>(*this, "k_proj", shape.width, shape.width, false)),
        v_(child<Linear>(*this, "v_proj", shape.width, shape.width, false)),
        q_(child<Linear>(*this, "q_proj", shape.width, shape.width, false)),
        out_(child<Linear>(*this, "out_proj", shape.width, shape.width)) {
    register_buffer("masked_bias", at::full({}, -1e9));  // unused, as in transformers
  }

  Attended operator()(const Tensor& states, const LayerInputs& with) const {
    const Tensor q = heads_of((*q_)(states));
    Tensor k = heads_of((*k_)(states)), v = heads_of((*v_)(states));
    keep(with.cache, k, v);
    Attended attended = attend_in_float(q, k, v, with.mask);
    Tensor& out = attended.out;
    out = out.permute({0, 2, 1, 3}).contiguous();
    out = out.view({states.size(0), states.size(1), shape_.width});
    out = (*out_)(out);
    out = at::dropout(out, shape_.residual_dropout, is_training());
    return attended;
  }

 private:
  static Tensor seen(const Shape& shape, bool windowed) {
    const std::int64_t positions = shape.positions;
    const Tensor all = at::ones({positions, positions}, at::kBool);
    Tensor before = at::tril(all).view({1, 1, positions, positions});
    if (windowed) before = at::bitwise_xor(before, at::tril(before, -shape.window));
    return before;
  }

  [[nodiscard]] Tensor heads_of(const Tensor& states) const {
    return states.view({states.size(0), states.size(1), shape_.heads, shape_.width / shape_.heads})
        .permute({0, 2, 1, 3});
  }

  [[nodiscard]] Attended attend_in_float(const Tensor& q, const Tensor& k, const Tensor& v,
                                         const Tensor& mask) const {
    const Tensor queries = q.to(at::kFloat), keys = k.to(at::kFloat);
    Tensor weights = at::matmul(queries, keys.transpose(-1, -2));
    const std::int64_t length = q.size(2), among = k.size(2);
    const Tensor seen = seen_.slice(2, among - length, among).slice(3, 0, among);
    const Tensor hidden = at::full({}, lowest(at::kFloat), weights.options());
    weights = at::where(seen, weights, hidden);
    if (mask.defined()) weights = weights + mask.slice(3, 0, among);
    weights = at::softmax(weights, -1);
    weights = weights.to(v.scalar_type());
    weights = at::dropout(weights, shape_.attention_dropout, is_training());
    return {at::matmul(weights, v), weights};
  }

  const Shape shape_;
  const Tensor seen_;
  const std::shared_ptr<Linear> k_, v_, q_, out_;
};

// On the hub the attention itself is one level deeper: attn.attention.
class AttentionOfLayer : public torch::nn::Module {
 public:
  AttentionOfLayer(const Shape& shape, bool windowed)
      : attention_(child<SelfAttention>(*this, "attention", shape, windowed)) {}
  Attended operator()(const Tensor& states, const LayerInputs& with) const {
    return (*attention_)(states, with);
  }

 private:
  const std::shared_ptr<SelfAttention> attention_;
};

class Block : public torch::nn::Module {
 public:
  Block(const Shape& shape, const nn::Activation& activation, bool windowed)
      : first_norm_(child<LayerNorm>(*this, "ln_1", shape.width, shape.epsilon)),
        attention_(child<AttentionOfLayer>(*this, "attn", shape, windowed)),
        second_norm_(child<LayerNorm>(*this, "ln_2", shape.width, shape.epsilon)),
        mlp_(child<Mlp<Linear>>(*this, "mlp", "c_fc", "c_proj", shape.width, shape.inner,
                                activation, shape.residual_dropout)) {}

  nn::Tensors operator()(Tensor states, const LayerInputs& with) const {
    Tensor residual = states;
    states = (*first_norm_)(states);
    const Attended attended = (*attention_)(states, with);
    states = attended.out + residual;
    residual = states;
    states = (*second_norm_)(states);
    const Tensor inner = (*mlp_)(states);
    return {residual + inner, attended.weights};
  }

 private:
  const std::shared_ptr<LayerNorm> first_norm_;
  const std::shared_ptr<AttentionOfLayer> attention_;
  const std::shared_ptr<LayerNorm> second_norm_;
  const std::shared_ptr<Mlp<Linear>> mlp_;
};

class GptNeo : public Decoder {
 public:
  GptNeo(const ModelConfig& config, const Here& here)
      : shape_(config),
        tokens_(here.words(*this, "wte", shape_.vocabulary, shape_.width)),
        positions_(here.begins()
                       ? child<nn::Embedding>(*this, "wpe", shape_.positions, shape_.width)
                       : nullptr),
        layers_(child<nn::List<Block>>(*this, "h")),
        norm_(here.ends() ? child<LayerNorm>(*this, "ln_f", shape_.width, shape_.epsilon)
                          : nullptr) {
    const nn::Activation function = nn::activation(shape_.function);
    for (std::int64_t i = 0; i < shape_.layers; ++i)
      here.add(*layers_, i,
               [&] { return std::make_shared<Block>(shape_, function, shape_.windowed.at(i)); });
  }

  Tensor operator()(const Batch& batch, const Net& net, const LayerInputs& given) const override {
    const bool begins = net.here().begins();
    const Tensor embedded = begins ? (*tokens_)(batch.tokens) : batch.given.at(0);
    const Tensor positions = at::arange(batch.tokens.size(1), batch.tokens.options());
    auto with = std::make_shared<LayerInputs>(given);
    const auto make_mask = given.newest() ? causal_mask : additive_causal_mask;
    with->mask = make_mask(batch, positions, given.mask_options(embedded.scalar_type()));
    const Tensor places = begins ? (*positions_)(positions.unsqueeze(0)) : Tensor();
    Tensor states = begins ? embedded + places : embedded;
    if (begins) states = at::dropout(states, shape_.embedding_dropout, is_training());
    states = through_layers_with_weights(net, *layers_, with, states);
    return net.here().ends() ? (*norm_)(states) : states;
  }

  [[nodiscard]] const Tensor& embedding() const override { return tokens_->weight; }

 private:
  const Shape shape_;
  const std::shared_ptr<nn::Embedding> tokens_, positions_;
  const std::shared_ptr<nn::List<Block>> layers_;
  const std::shared_ptr<LayerNorm> norm_;
};

}  // namespace
}  // namespace gpt_neo

Build gpt_neo_family() {
  return decoder_family([](const model::ModelConfig& config, const Settings& settings) {
    const HeadOptions options = {.decoder = "transformer",
                                 .head = "lm_head",
                                 .casts_twice = settings.transformers == Transformers::v4_57};
    return Headless{std::make_shared<gpt_neo::GptNeo>(config, Here(config, settings)), options};
  });
}

}  // namespace headroom::models::detail
