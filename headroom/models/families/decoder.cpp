#include "headroom/models/families/decoder.h"

#include <ATen/ATen.h>

#include <cmath>

#include "headroom/models/detail/attention.h"
#include "headroom/models/detail/last_token.h"
#include "headroom/models/detail/loss.h"
#include "headroom/models/detail/masks.h"

namespace headroom::models::detail::decoder {

using nn::Linear;
using nn::RmsNorm;

// ---- Attention ----

Seen attended_heads(const Shape& shape, bool training, const Tensor& q, Tensor& k, Tensor& v,
                    const Surroundings& with) {
  keep(with.cache, k, v);
  AttentionOptions options;
  options.dropout = training ? shape.attention_dropout : 0;
  options.scaling = shape.scaling;
  options.groups = shape.heads / shape.key_heads;
  options.softcap = shape.softcap;
  Attended seen = attended(with.attention, q, k, v, with.mask, options);
  return {seen.out.reshape({q.size(0), q.size(2), -1}).contiguous(), seen.weights};
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

Seen SelfAttention::operator()(const Tensor& states, const Surroundings& with) const {
  Tensor q = heads_of(*q_, q_norm_.get(), states);
  Tensor k = heads_of(*k_, k_norm_.get(), states);
  Tensor v = heads_of(*v_, nullptr, states);
  std::tie(q, k) = std::pair{turned(q, with.rotation), turned(k, with.rotation)};  // in this order
  Seen seen = attended_heads(shape_, is_training(), q, k, v, with);
  seen.states = (*out_)(seen.states);
  return seen;
}

Tensor SelfAttention::heads_of(const Linear& projection, const RmsNorm* norm,
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

using RunLayer = std::function<Tensor(std::size_t, const Function&, const Tensor&)>;

class Decoder : public torch::nn::Module {
 public:
  explicit Decoder(const Plan& plan)
      : plan_(plan),
        embedding_(child<nn::Embedding>(*this, "embed_tokens", plan.shape.vocabulary,
                                        plan.shape.width, plan.shape.padding)),
        layers_(child<nn::List<Layer>>(*this, "layers")) {
    for (std::int64_t i = 0; i < plan.shape.layers; ++i) layers_->add(plan.layer());
    norm_ = plan.norm(*this, "norm");
    rotary_ = child<Rotary>(*this, "rotary_emb", plan.shape.rope);
  }

  Tensor operator()(const Batch& batch, const std::shared_ptr<Surroundings>& with,
                    const RunLayer& run_layer) const {
    const Tensor embedded = (*embedding_)(batch.tokens);
    const Tensor positions = at::arange(batch.tokens.size(1), batch.tokens.options());
    with->positions = positions;
    const Masks masks = masks_of(*with, batch, embedded.scalar_type());
    with->rotation = (*rotary_)(positions.unsqueeze(0), embedded.scalar_type());
    Tensor states = plan_.scaled_embedding ? scaled(embedded) : embedded;
    for (std::size_t i = 0; i < layers_->size(); ++i) {
      const auto run = [layer = (*layers_)[i], with,
                        mask = masks.of(plan_.shape.windowed.at(i))](const Tensor& x) {
        Surroundings own = *with;
        own.mask = mask;
        return (*layer)(x, own);
      };
      states = run_layer(i, run, states);
    }
    with->routes = nullptr;  // recomputed layers must not add theirs again
    return norm_(states);
  }

  [[nodiscard]] const Tensor& embedding() const { return embedding_->weight; }

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

  [[nodiscard]] Masks masks_of(const Surroundings& with, const Batch& batch,
                               at::ScalarType type) const {
    Masks masks;
    bool any = false, all = true;
    for (const bool windowed : plan_.shape.windowed) {
      any = any || windowed;
      all = all && windowed;
    }
    MaskOptions options{
        .attention = with.attention, .type = type, .with_cache = with.cache != nullptr};
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

// A decoder without a head.
class Headless : public Net {
 protected:
  Headless(const ModelConfig& config, Task task, const Settings& settings, const Plan& plan)
      : Net(config, task, settings), plan_(plan), decoder_(child<Decoder>(*this, "model", plan)) {}

  // Routers' logits go to `output.more`.
  Tensor states_of(const Batch& batch, Output& output) const {
    auto with = std::make_shared<Surroundings>();
    with->attention = settings().attention;
    if (keeps_cache() && (plan_.cache_when_training || !is_training())) with->cache = &output.cache;
    if (plan_.collects_routes) with->routes = &output.more;
    return (*decoder_)(batch, with, [this](std::size_t i, const Function& layer, const Tensor& x) {
      return run_layer(i, layer, x);
    });
  }

  const Plan plan_;
  const std::shared_ptr<Decoder> decoder_;
};

class CausalLm : public Headless {
 public:
  CausalLm(const ModelConfig& config, const Settings& settings, const Plan& plan)
      : Headless(config, Task::causal_lm, settings, plan),
        head_(config.flag("tie_word_embeddings")
                  ? child<Linear>(*this, "lm_head", decoder_->embedding())
                  : child<Linear>(*this, "lm_head", plan.shape.width, plan.shape.vocabulary,
                                  false)) {}

  Output run(const Batch& batch) override {
    Output output;
    const Tensor states = states_of(batch, output);
    if (chunks_loss(batch)) {
      output.loss = chunked_causal_lm_loss(
          [self = shared_from_this(), this](const Tensor& x) { return logits_of(x); }, states,
          batch.labels, settings().loss_chunk);
    } else {
      output.logits = logits_of(states);
      if (!batch.labels.defined()) return output;
      output.loss = causal_lm_loss(output.logits, batch.labels, plan_.shape.vocabulary);
    }
    if (plan_.routing_loss) output.loss.add_(plan_.routing_loss(output.more, batch));
    return output;
  }

 private:
  [[nodiscard]] Tensor logits_of(const Tensor& states) const {
    Tensor logits = (*head_)(states);
    if (plan_.shape.logit_cap == 0) return logits;
    logits = logits / plan_.shape.logit_cap;
    logits = at::tanh(logits);
    return logits * plan_.shape.logit_cap;
  }

  const std::shared_ptr<Linear> head_;
};

class Classifier : public Headless {
 public:
  Classifier(const ModelConfig& config, const Settings& settings, const Plan& plan)
      : Headless(config, Task::sequence_classification, settings, plan),
        score_(child<Linear>(*this, "score", plan.shape.width, config.labels(), false)) {}

  Output run(const Batch& batch) override {
    Output output;
    const Tensor states = states_of(batch, output);
    const Tensor everywhere = (*score_)(states);
    output.logits = at_last_token(everywhere, batch.tokens, config());
    if (batch.labels.defined())
      output.loss = classification_loss(output.logits, batch.labels, config());
    return output;
  }

 private:
  const std::shared_ptr<Linear> score_;
};

}  // namespace

Build family(std::function<Plan(const ModelConfig&)> plan_of) {
  return [plan_of = std::move(plan_of)](const ModelConfig& config, Task task,
                                        const Settings& settings) -> std::shared_ptr<Model> {
    const Plan plan = plan_of(config);
    if (task == Task::causal_lm) return std::make_shared<CausalLm>(config, settings, plan);
    return std::make_shared<Classifier>(config, settings, plan);
  };
}

}  // namespace headroom::models::detail::decoder
