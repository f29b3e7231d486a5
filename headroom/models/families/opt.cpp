// OPT (modeling_opt.py of transformers).
//
// Where it matters, each statement runs one operation, and variables live as long as in Python: see
// families/decoder.h.
#include <ATen/ATen.h>

#include <cmath>

#include "headroom/model/shapes.h"
#include "headroom/models/detail/decoder_heads.h"
#include "headroom/models/detail/older_masks.h"

namespace headroom::models::detail {
namespace opt {
namespace {

using model::ModelConfig;
using nn::LayerNorm;
using nn::Linear;

constexpr double kEpsilon = 1e-5;  // torch.nn.LayerNorm's default

using Shape = model::OptShape;

class SelfAttention : public torch::nn::Module {
 public:
  explicit SelfAttention(const Shape& shape)
      : shape_(shape),
        k_(child<Linear>(*this, "k_proj", shape.width, shape.width, shape.with_bias)),
        v_(child<Linear>(*this, "v_proj", shape.width, shape.width, shape.with_bias)),
        q_(child<Linear>(*this, "q_proj", shape.width, shape.width, shape.with_bias)),
        out_(child<Linear>(*this, "out_proj", shape.width, shape.width, shape.with_bias)) {}

  Attended operator()(const Tensor& states, const LayerInputs& with) const {
    const std::int64_t head_width = shape_.width / shape_.heads;
    Tensor q = (*q_)(states);
    q = q * std::pow(static_cast<double>(head_width), -0.5);
    q = heads_of(q, head_width);
    Tensor k = heads_of((*k_)(states), head_width), v = heads_of((*v_)(states), head_width);
    keep(with.cache, k, v);
    AttentionOptions options;
    options.dropout = is_training() ? shape_.attention_dropout : 0;
    options.scaling = 1;  // queries are already scaled
    Attended attended = detail::attended(with.attention, q, k, v, with.mask, options);
    Tensor& out = attended.out;
    out = out.reshape({states.size(0), states.size(1), -1}).contiguous();
    // 4.57 returns no weights.
    if (!with.newest()) attended.weights.reset();
    out = (*out_)(out);
    return attended;
  }

 private:
  const Shape shape_;
  const std::shared_ptr<Linear> k_, v_, q_, out_;
};

class DecoderLayer : public torch::nn::Module {
 public:
  DecoderLayer(const Shape& shape, nn::Activation activation)
      : shape_(shape),
        attention_(child<SelfAttention>(*this, "self_attn", shape)),
        activation_(std::move(activation)),
        attention_norm_(
            child<LayerNorm>(*this, "self_attn_layer_norm", shape.width, kEpsilon, shape.affine)),
        up_(child<Linear>(*this, "fc1", shape.width, shape.inner, shape.with_bias)),
        down_(child<Linear>(*this, "fc2", shape.inner, shape.width, shape.with_bias)),
        final_norm_(
            child<LayerNorm>(*this, "final_layer_norm", shape.width, kEpsilon, shape.affine)) {}

  Tensor operator()(Tensor states, const LayerInputs& with) const {
    Tensor residual = states;
    if (shape_.norm_first) states = (*attention_norm_)(states);
    Attended attended = (*attention_)(states, with);
    states = std::move(attended.out);
    states = at::dropout(states, shape_.hidden_dropout, is_training());
    states = residual + states;
    if (!shape_.norm_first) states = (*attention_norm_)(states);
    const std::vector<std::int64_t> sizes = states.sizes().vec();
    states = states.reshape({-1, shape_.width});
    residual = states;
    if (shape_.norm_first) states = (*final_norm_)(states);
    states = (*up_)(states);
    states = activation_(states);
    states = (*down_)(states);
    states = at::dropout(states, shape_.hidden_dropout, is_training());
    states = (residual + states).view(sizes);
    if (!shape_.norm_first) states = (*final_norm_)(states);
    return states;
  }

 private:
  const Shape shape_;
  const std::shared_ptr<SelfAttention> attention_;
  const nn::Activation activation_;
  const std::shared_ptr<LayerNorm> attention_norm_;
  const std::shared_ptr<Linear> up_, down_;
  const std::shared_ptr<LayerNorm> final_norm_;
};

class InnerDecoder : public torch::nn::Module {
 public:
  InnerDecoder(const ModelConfig& config, const Here& here)
      : shape_(config),
        tokens_(here.words(*this, "embed_tokens", shape_.vocabulary, shape_.token_width,
                           shape_.padding)) {
    const bool projects = shape_.token_width != shape_.width;
    if (here.begins())
      positions_ = child<nn::Embedding>(*this, "embed_positions",
                                        shape_.positions + Shape::kFirstPosition, shape_.width);
    if (projects && here.ends())
      out_ = child<Linear>(*this, "project_out", shape_.width, shape_.token_width, false);
    if (projects && here.begins())
      in_ = child<Linear>(*this, "project_in", shape_.token_width, shape_.width, false);
    if (shape_.norm_at_end && here.ends())
      norm_ = child<LayerNorm>(*this, "final_layer_norm", shape_.width, kEpsilon, shape_.affine);
    layers_ = child<nn::List<DecoderLayer>>(*this, "layers");
    const nn::Activation function = nn::activation(shape_.function);
    for (std::int64_t i = 0; i < shape_.layers; ++i)
      here.add(*layers_, i, [&] { return std::make_shared<DecoderLayer>(shape_, function); });
  }

  Tensor operator()(const Batch& batch, const Net& net, const LayerInputs& given) const {
    const bool begins = net.here().begins();
    Tensor embedded = begins ? (*tokens_)(batch.tokens) : batch.given.at(0);
    const Tensor positions = at::arange(batch.tokens.size(1), batch.tokens.options());
    Batch with_mask = batch;
    if (!batch.mask.defined()) {
      with_mask.mask = at::ones(batch.tokens.sizes(), batch.tokens.options().dtype(at::kFloat));
      with_mask.mask_is_all_ones = true;
    }
    auto with = std::make_shared<LayerInputs>(given);
    const MaskOptions options = given.mask_options(embedded.scalar_type());
    if (given.newest()) {
      with->places = places_of(with_mask.mask);
      with->mask = causal_mask(batch, positions, options);
    } else {
      with->positions = positions;
      with->mask = additive_causal_mask(with_mask, positions, options);
      with->places = places_of(with_mask.mask);
    }
    const Tensor places = begins ? (*positions_)(with->places + Shape::kFirstPosition) : Tensor();
    if (in_) embedded = (*in_)(embedded);
    Tensor states = through_layers(net, *layers_, with, begins ? embedded + places : embedded);
    if (norm_) states = (*norm_)(states);
    if (out_) states = (*out_)(states);
    return states;
  }

  [[nodiscard]] const Tensor& embedding() const { return tokens_->weight; }

 private:
  // Counts by the mask, so that padding before the first token takes no position.
  static Tensor places_of(const Tensor& mask) {
    Tensor places = mask.cumsum(1);
    places = places * mask;
    places = places - 1;
    return places.to(at::kLong);
  }

  const Shape shape_;
  const std::shared_ptr<nn::Embedding> tokens_;
  std::shared_ptr<nn::Embedding> positions_;
  std::shared_ptr<Linear> out_, in_;
  std::shared_ptr<LayerNorm> norm_;
  std::shared_ptr<nn::List<DecoderLayer>> layers_;
};

// On the hub the decoder is one level deeper: model.decoder.
class Opt : public Decoder {
 public:
  Opt(const ModelConfig& config, Transformers, const Here& here)
      : decoder_(child<InnerDecoder>(*this, "decoder", config, here)) {}

  Tensor operator()(const Batch& batch, const Net& net, const LayerInputs& given) const override {
    return (*decoder_)(batch, net, given);
  }
  [[nodiscard]] const Tensor& embedding() const override { return decoder_->embedding(); }

 private:
  const std::shared_ptr<InnerDecoder> decoder_;
};

}  // namespace
}  // namespace opt

Build opt_family() {
  return decoder_family<opt::Opt>({.decoder = "model", .head = "lm_head"});
}

}  // namespace headroom::models::detail
