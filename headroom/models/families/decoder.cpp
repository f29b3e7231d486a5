#include "headroom/models/families/decoder.h"

#include <ATen/ATen.h>

#include <cmath>

namespace headroom::models::detail::decoder {

using nn::Linear;
using nn::RmsNorm;

// ---- Attention ----

Attended attended_heads(const Shape& shape, bool training, const Tensor& q, Tensor& k, Tensor& v,
                        const LayerInputs& with) {
  keep(with.cache, k, v);
  AttentionOptions options;
  options.dropout = training ? shape.attention_dropout : 0;
  options.scaling = shape.scaling;
  options.groups = shape.heads / shape.key_heads;
  options.softcap = shape.softcap;
  Attended seen = attended(with.attention, q, k, v, with.mask, options);
  seen.out = seen.out.reshape({q.size(0), q.size(2), -1}).contiguous();
  return seen;
}

SelfAttention::SelfAttention(const Shape& shape)
    : shape_(shape),
      q_(child<Linear>(*this, "q_proj", shape.width, shape.heads * shape.head_width,
                       shape.qkv_bias)),
      k_(child<Linear>(*this, "k_proj", shape.width, shape.key_heads * shape.head_width,
                       shape.qkv_bias)),
      v_(child<Linear>(*this, "v_proj", shape.width, shape.key_heads * shape.head_width,
                       shape.qkv_bias)),
      out_(child<Linear>(*this, "o_proj", shape.heads * shape.head_width, shape.width,
                         shape.out_bias)) {
  if (!shape.normalised_heads) return;
  q_norm_ = child<RmsNorm>(*this, "q_norm", shape.head_width, shape.epsilon);
  k_norm_ = child<RmsNorm>(*this, "k_norm", shape.head_width, shape.epsilon);
}

Attended SelfAttention::operator()(const Tensor& states, const LayerInputs& with) const {
  Tensor q = heads(*q_, q_norm_.get(), states);
  Tensor k = heads(*k_, k_norm_.get(), states);
  Tensor v = heads(*v_, nullptr, states);
  std::tie(q, k) =
      std::pair{rotated(q, with.rotation), rotated(k, with.rotation)};  // in this order
  Attended seen = attended_heads(shape_, is_training(), q, k, v, with);
  seen.out = (*out_)(seen.out);
  return seen;
}

Tensor SelfAttention::heads(const Linear& projection, const RmsNorm* norm,
                            const Tensor& states) const {
  Tensor heads = projection(states).view({states.size(0), states.size(1), -1, shape_.head_width});
  if (norm != nullptr) heads = (*norm)(heads);
  return heads.transpose(1, 2);
}

// ---- The feed-forward block ----

GatedMlp::GatedMlp(const Shape& shape, Function activation, const Names& names)
    : activation_(std::move(activation)) {
  const auto make_down = [&] {
    down_ = child<Linear>(*this, names.down, shape.inner, shape.width, shape.mlp_bias);
  };
  gate_ = child<Linear>(*this, names.gate, shape.width, shape.inner, shape.mlp_bias);
  if (names.down_is_second) make_down();
  up_ = child<Linear>(*this, names.up, shape.width, shape.inner, shape.mlp_bias);
  if (!names.down_is_second) make_down();
}

Tensor GatedMlp::operator()(const Tensor& x) const {
  Tensor inner = (*gate_)(x);
  inner = activation_(inner);
  Tensor up = (*up_)(x);
  inner = inner * up;
  up.reset();
  return (*down_)(inner);
}

// ---- The whole decoder and its heads ----

namespace {

class WholeDecoder : public Decoder {
 public:
  WholeDecoder(const Plan& plan, Transformers transformers, const Here& here)
      : plan_(plan),
        embedding_(here.words(*this, "embed_tokens", plan.shape.vocabulary, plan.shape.width,
                              plan.shape.padding)),
        layers_(child<nn::List<Layer>>(*this, "layers")) {
    for (std::int64_t i = 0; i < plan.shape.layers; ++i) here.add(*layers_, i, plan.layer);
    if (here.ends()) norm_ = plan.norm(*this, "norm");
    rotary_ = child<Rotary>(*this, "rotary_emb", plan.shape.rope, transformers);
  }

  Tensor operator()(const Batch& batch, const Net& net, const LayerInputs& given) const override {
    const auto with = std::make_shared<LayerInputs>(given);
    const bool begins = net.here().begins(), scales = begins && plan_.scaled_embedding;
    Tensor embedded = begins ? (*embedding_)(batch.tokens) : batch.given.at(0);
    if (scales && given.newest()) embedded = scaled(embedded);
    const Tensor positions = at::arange(batch.tokens.size(1), batch.tokens.options());
    with->positions = positions;
    const Masks masks = masks_of(*with, batch, embedded.scalar_type());
    with->rotation = (*rotary_)(positions.unsqueeze(0), embedded.scalar_type());
    Tensor states = scales && !given.newest() ? scaled(embedded) : embedded;
    for (std::size_t i = 0; i < layers_->size(); ++i) {
      if (!(*layers_)[i]) continue;
      const auto run = [layer = (*layers_)[i], with,
                        mask = masks.of(plan_.shape.windowed.at(i))](const Tensor& x) {
        LayerInputs own = *with;
        own.mask = mask;
        return (*layer)(x, own);
      };
      states = net.run_layer(i, run, states);
    }
    with->routes = nullptr;  // recomputed layers must not add theirs again
    return net.here().ends() ? norm_(states) : states;
  }

  [[nodiscard]] const Tensor& embedding() const override { return embedding_->weight; }

 private:
  // Separate, because a checkpointed layer keeps only the mask of its own kind.
  struct Masks {
    Tensor full, windowed;
    [[nodiscard]] const Tensor& of(bool window) const { return window ? windowed : full; }
  };

  // Multiplies by a number that is first rounded to the states' type.
  [[nodiscard]] Tensor scaled(const Tensor& embedded) const {
    const double by = std::sqrt(static_cast<double>(plan_.shape.width));
    return embedded * at::scalar_tensor(by, at::device(at::kCPU).dtype(embedded.scalar_type()));
  }

  [[nodiscard]] Masks masks_of(const LayerInputs& with, const Batch& batch,
                               at::ScalarType type) const {
    Masks masks;
    bool any = false, all = true;
    for (const bool windowed : plan_.shape.windowed) {
      any = any || windowed;
      all = all && windowed;
    }
    MaskOptions options = with.mask_options(type);
    if (!all || plan_.shape.always_full_mask)
      masks.full = causal_mask(batch, with.positions, options);
    if (!any && !plan_.always_windowed_mask) return masks;
    options.window = plan_.shape.window;
    masks.windowed = causal_mask(batch, with.positions, options);
    return masks;
  }

  const Plan plan_;
  const std::shared_ptr<nn::Embedding> embedding_;
  const std::shared_ptr<nn::List<Layer>> layers_;
  Function norm_;
  std::shared_ptr<Rotary> rotary_;
};

}  // namespace

Build family(std::function<Plan(const ModelConfig&, Transformers)> plan_of) {
  return decoder_family([plan_of = std::move(plan_of)](const ModelConfig& config,
                                                       const Settings& settings) {
    const Plan plan = plan_of(config, settings.transformers);
    const Here here(config, settings);
    return Headless{std::make_shared<WholeDecoder>(plan, settings.transformers, here), plan.head};
  });
}

}  // namespace headroom::models::detail::decoder
