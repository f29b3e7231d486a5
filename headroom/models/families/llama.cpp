// Llama, Mistral, Qwen2 and Qwen3 (modeling_llama.py, modeling_mistral.py, modeling_qwen2.py and
// modeling_qwen3.py of transformers 4.57.6): one decoder with four small differences.
//
// Python frees a temporary when the operation that took it has run; so one operation a statement
// where it matters, and variables are bound again where Python binds them again.
#include <ATen/ATen.h>

#include <cmath>
#include <optional>

#include "headroom/models/detail/attention.h"
#include "headroom/models/detail/family.h"
#include "headroom/models/detail/loss.h"
#include "headroom/models/detail/masks.h"
#include "headroom/models/detail/rotary.h"

namespace headroom::models::detail {
namespace {

using formula::ModelConfig;
using nn::Linear;
using nn::RmsNorm;

// The numbers of a decoder of this family.
struct Shape {
  explicit Shape(const ModelConfig& config);

  std::int64_t width, heads, key_heads, head_width, inner, layers, vocabulary;
  double epsilon, dropout;
  bool qkv_bias = false, out_bias = false, mlp_bias = false;
  bool normalised_heads = false;            // Qwen3 normalises queries and keys
  std::optional<std::int64_t> window = {};  // Mistral's, and Qwen's upper layers'
  std::int64_t first_with_window = 0;
};

bool flag_if_known(const ModelConfig& config, const char* key) {
  return config.has(key) && config.flag(key);
}

Shape::Shape(const ModelConfig& config)
    : width(config.at_least_1("hidden_size")),
      heads(config.at_least_1("num_attention_heads")),
      key_heads(config.optional_count("num_key_value_heads").value_or(heads)),
      head_width(width / heads),
      inner(config.at_least_1("intermediate_size")),
      layers(config.at_least_1("num_hidden_layers")),
      vocabulary(config.at_least_1("vocab_size")),
      epsilon(config.number("rms_norm_eps")),
      dropout(config.number("attention_dropout")) {
  if (config.has("head_dim")) head_width = config.optional_count("head_dim").value_or(head_width);
  if (key_heads < 1 || heads % key_heads != 0)
    config.refuse("num_key_value_heads", "a divisor of num_attention_heads");
  const std::string& type = config.type();
  qkv_bias = type == "qwen2" || flag_if_known(config, "attention_bias");
  out_bias = flag_if_known(config, "attention_bias");
  mlp_bias = flag_if_known(config, "mlp_bias");
  normalised_heads = type == "qwen3";
  if (type == "mistral") window = config.optional_count("sliding_window");
  if (config.has("use_sliding_window") && config.flag("use_sliding_window")) {
    window = config.optional_count("sliding_window");
    first_with_window = config.count("max_window_layers");
  }
}

// What a layer is given besides the hidden states.
struct Surroundings {
  Attention attention = Attention::sdpa;
  CosSin rotation;
  Tensor full, windowed;  // masks
  Cache* cache = nullptr;
};

class SelfAttention : public torch::nn::Module {
 public:
  explicit SelfAttention(const Shape& shape)
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

  Tensor operator()(const Tensor& states, const Tensor& mask, const Surroundings& with) const {
    Tensor q = heads_of(*q_, q_norm_.get(), states);
    Tensor k = heads_of(*k_, k_norm_.get(), states);
    Tensor v = heads_of(*v_, nullptr, states);
    std::tie(q, k) = std::pair(turned(q, with.rotation), turned(k, with.rotation));
    keep(with.cache, k, v);
    AttentionOptions options;
    options.dropout = is_training() ? shape_.dropout : 0;
    options.scaling = 1 / std::sqrt(static_cast<double>(shape_.head_width));
    options.groups = shape_.heads / shape_.key_heads;
    Tensor out = attend(with.attention, q, k, v, mask, options);
    out = out.reshape({states.size(0), states.size(1), -1}).contiguous();
    return (*out_)(out);
  }

 private:
  Tensor heads_of(const Linear& projection, const RmsNorm* norm, const Tensor& states) const {
    Tensor heads = projection(states).view({states.size(0), states.size(1), -1, shape_.head_width});
    if (norm != nullptr) heads = (*norm)(heads);
    return heads.transpose(1, 2);
  }

  const Shape shape_;
  const std::shared_ptr<Linear> q_, k_, v_, out_;
  std::shared_ptr<RmsNorm> q_norm_, k_norm_;
};

class GatedMlp : public torch::nn::Module {
 public:
  GatedMlp(const Shape& shape, nn::Activation activation)
      : gate_(child<Linear>(*this, "gate_proj", shape.width, shape.inner, shape.mlp_bias)),
        up_(child<Linear>(*this, "up_proj", shape.width, shape.inner, shape.mlp_bias)),
        down_(child<Linear>(*this, "down_proj", shape.inner, shape.width, shape.mlp_bias)),
        activation_(std::move(activation)) {}

  Tensor operator()(const Tensor& x) const {
    Tensor inner = (*gate_)(x);
    inner = activation_(inner);
    Tensor up = (*up_)(x);
    inner = inner * up;
    up.reset();
    return (*down_)(inner);
  }

 private:
  const std::shared_ptr<Linear> gate_, up_, down_;
  const nn::Activation activation_;
};

class DecoderLayer : public torch::nn::Module {
 public:
  DecoderLayer(const Shape& shape, const nn::Activation& activation, bool windowed)
      : attention_(child<SelfAttention>(*this, "self_attn", shape)),
        mlp_(child<GatedMlp>(*this, "mlp", shape, activation)),
        input_norm_(child<RmsNorm>(*this, "input_layernorm", shape.width, shape.epsilon)),
        inner_norm_(child<RmsNorm>(*this, "post_attention_layernorm", shape.width, shape.epsilon)),
        windowed_(windowed) {}

  Tensor operator()(Tensor states, const Surroundings& with) const {
    Tensor residual = states;
    states = (*input_norm_)(states);
    states = (*attention_)(states, windowed_ ? with.windowed : with.full, with);
    states = residual + states;
    residual = states;
    states = (*inner_norm_)(states);
    states = (*mlp_)(states);
    return residual + states;
  }

 private:
  const std::shared_ptr<SelfAttention> attention_;
  const std::shared_ptr<GatedMlp> mlp_;
  const std::shared_ptr<RmsNorm> input_norm_, inner_norm_;
  const bool windowed_;
};

class Decoder : public torch::nn::Module {
 public:
  Decoder(const ModelConfig& config, const Shape& shape)
      : shape_(shape),
        embedding_(child<nn::Embedding>(*this, "embed_tokens", shape.vocabulary, shape.width,
                                        config.optional_count("pad_token_id").value_or(-1))),
        layers_(child<nn::List<DecoderLayer>>(*this, "layers")),
        norm_(child<RmsNorm>(*this, "norm", shape.width, shape.epsilon)),
        rotary_(child<Rotary>(*this, "rotary_emb", config, shape.head_width)) {
    const nn::Activation function = activation(config, "hidden_act");
    for (std::int64_t i = 0; i < shape.layers; ++i)
      layers_->add(std::make_shared<DecoderLayer>(
          shape, function, shape.window.has_value() && i >= shape.first_with_window));
  }

  using RunLayer = std::function<Tensor(std::size_t, const std::function<Tensor(const Tensor&)>&,
                                        const Tensor&)>;

  Tensor operator()(const Batch& batch, Attention attention, Cache* cache,
                    const RunLayer& run_layer) const {
    const Tensor embedded = (*embedding_)(batch.tokens);
    const Tensor positions = at::arange(batch.tokens.size(1), batch.tokens.options());
    auto with = std::make_shared<Surroundings>();
    with->attention = attention;
    with->cache = cache;
    make_masks(*with, batch, positions, embedded.scalar_type());
    with->rotation = (*rotary_)(positions.unsqueeze(0), embedded.scalar_type());
    Tensor states = embedded;
    for (std::size_t i = 0; i < layers_->size(); ++i) {
      const auto layer = (*layers_)[i];
      states = run_layer(
          i, [layer, with](const Tensor& x) { return (*layer)(x, *with); }, states);
    }
    return (*norm_)(states);
  }

  [[nodiscard]] const Tensor& embedding() const { return embedding_->weight; }

 private:
  void make_masks(Surroundings& with, const Batch& batch, const Tensor& positions,
                  at::ScalarType type) const {
    MaskOptions options{
        .attention = with.attention, .type = type, .with_cache = with.cache != nullptr};
    if (!shape_.window || shape_.first_with_window > 0)
      with.full = causal_mask(batch, positions, options);
    if (!shape_.window || shape_.first_with_window >= shape_.layers) return;
    options.window = shape_.window;
    with.windowed = causal_mask(batch, positions, options);
  }

  const Shape shape_;
  const std::shared_ptr<nn::Embedding> embedding_;
  const std::shared_ptr<nn::List<DecoderLayer>> layers_;
  const std::shared_ptr<RmsNorm> norm_;
  const std::shared_ptr<Rotary> rotary_;
};

class CausalLm : public Net {
 public:
  CausalLm(const ModelConfig& config, const Settings& settings)
      : Net(config, Task::causal_lm, settings),
        vocabulary_(Shape(config).vocabulary),
        decoder_(child<Decoder>(*this, "model", config, Shape(config))),
        head_(config.flag("tie_word_embeddings")
                  ? child<Linear>(*this, "lm_head", decoder_->embedding())
                  : child<Linear>(*this, "lm_head", Shape(config).width, vocabulary_, false)) {}

  Output run(const Batch& batch) override {
    Output output;
    const Tensor states =
        (*decoder_)(batch, settings().attention, keeps_cache() ? &output.cache : nullptr,
                    [this](std::size_t i, const auto& layer, const Tensor& x) {
                      return run_layer(i, layer, x);
                    });
    output.logits = (*head_)(states);
    if (batch.labels.defined())
      output.loss = causal_lm_loss(output.logits, batch.labels, vocabulary_);
    return output;
  }

 private:
  const std::int64_t vocabulary_;
  const std::shared_ptr<Decoder> decoder_;
  const std::shared_ptr<Linear> head_;
};

}  // namespace

Family llama_family() {
  return {{Task::causal_lm}, [](const ModelConfig& config, Task, const Settings& settings) {
            return std::make_shared<CausalLm>(config, settings);
          }};
}

}  // namespace headroom::models::detail
