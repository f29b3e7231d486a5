// DistilBERT (modeling_distilbert.py of transformers 4.57.6).
//
// Python frees a temporary after the operation that used it, and a function's variables when the
// function returns. This code does the same.
#include <ATen/ATen.h>

#include <cmath>

#include "headroom/model/shapes.h"
#include "headroom/models/detail/attention.h"
#include "headroom/models/detail/family.h"
#include "headroom/models/detail/loss.h"
#include "headroom/models/detail/masks.h"

namespace headroom::models::detail {
namespace distilbert {
namespace {

using model::ModelConfig;
using nn::LayerNorm;
using nn::Linear;

constexpr double kEpsilon = 1e-12;  // of every norm; the config has no key for it

using Shape = model::DistilbertShape;

// A layer's inputs besides the hidden states.
struct Surroundings {
  Attention attention = Attention::sdpa;
  Tensor mask;  // sdpa: additive, or undefined; eager: as given, [batch, length]
};

class Embeddings : public torch::nn::Module {
 public:
  Embeddings(const ModelConfig& config, const Shape& shape)
      : dropout_(shape.dropout),
        words_(child<nn::Embedding>(*this, "word_embeddings", shape.vocabulary, shape.width,
                                    shape.padding)),
        places_(child<nn::Embedding>(*this, "position_embeddings", shape.positions, shape.width)),
        norm_(child<LayerNorm>(*this, "LayerNorm", shape.width, kEpsilon)),
        position_ids_(register_buffer(
            "position_ids", at::arange(shape.positions, at::dtype(at::kLong)).expand({1, -1}))) {
    // Sinusoidal positions are not trained.
    if (config.flag("sinusoidal_pos_embds")) places_->weight.set_requires_grad(false);
  }

  Tensor operator()(const Tensor& tokens) const {
    const Tensor words = (*words_)(tokens);
    const Tensor places = (*places_)(position_ids_.slice(1, 0, tokens.size(1)));
    Tensor embedded = words + places;
    embedded = (*norm_)(embedded);
    return at::dropout(embedded, dropout_, is_training());
  }

  [[nodiscard]] const Tensor& words() const { return words_->weight; }

 private:
  const double dropout_;
  const std::shared_ptr<nn::Embedding> words_, places_;
  const std::shared_ptr<LayerNorm> norm_;
  const Tensor position_ids_;
};

class SelfAttention : public torch::nn::Module {
 public:
  explicit SelfAttention(const Shape& shape)
      : shape_(shape),
        q_(child<Linear>(*this, "q_lin", shape.width, shape.width)),
        k_(child<Linear>(*this, "k_lin", shape.width, shape.width)),
        v_(child<Linear>(*this, "v_lin", shape.width, shape.width)),
        out_(child<Linear>(*this, "out_lin", shape.width, shape.width)) {}

  Tensor operator()(const Tensor& states, const Surroundings& with) const {
    Tensor q = heads_of(*q_, states);
    const Tensor k = heads_of(*k_, states), v = heads_of(*v_, states);
    if (with.attention == Attention::eager) return eager_form(q, k, v, with.mask);
    AttentionOptions options;
    options.dropout = is_training() ? shape_.attention_dropout : 0;
    options.is_causal = false;
    Tensor out = sdpa(q, k, v, with.mask, options).view(states.sizes());
    out = (*out_)(out);
    return out;
  }

 private:
  Tensor heads_of(const Linear& projection, const Tensor& states) const {
    return projection(states)
        .view({states.size(0), -1, shape_.heads, shape_.width / shape_.heads})
        .transpose(1, 2);
  }

  Tensor eager_form(Tensor& q, const Tensor& k, const Tensor& v, const Tensor& given) const {
    q = q / std::sqrt(static_cast<double>(q.size(-1)));
    Tensor scores = at::matmul(q, k.transpose(2, 3));
    const Tensor hidden = (given == 0).view({q.size(0), 1, 1, k.size(2)}).expand_as(scores);
    scores = scores.masked_fill(hidden, lowest(scores.scalar_type()));
    Tensor shares = at::softmax(scores, -1);
    shares = at::dropout(shares, shape_.attention_dropout, is_training());
    Tensor out = at::matmul(shares, v);
    out = out.transpose(1, 2).contiguous().view({q.size(0), -1, shape_.width});
    out = (*out_)(out);
    return out;
  }

  const Shape shape_;
  const std::shared_ptr<Linear> q_, k_, v_, out_;
};

class FeedForward : public torch::nn::Module {
 public:
  FeedForward(const Shape& shape, nn::Activation activation)
      : shape_(shape),
        in_(child<Linear>(*this, "lin1", shape.width, shape.inner)),
        out_(child<Linear>(*this, "lin2", shape.inner, shape.width)),
        activation_(std::move(activation)) {}

  Tensor operator()(const Tensor& states) const {
    const auto part = [this](const Tensor& input) {
      Tensor x = (*in_)(input);
      x = activation_(x);
      x = (*out_)(x);
      return at::dropout(x, shape_.dropout, is_training());
    };
    return in_chunks(part, shape_.chunk, states);
  }

 private:
  const Shape shape_;
  const std::shared_ptr<Linear> in_, out_;
  const nn::Activation activation_;
};

class Block : public torch::nn::Module {
 public:
  Block(const Shape& shape, const nn::Activation& activation)
      : attention_(child<SelfAttention>(*this, "attention", shape)),
        attention_norm_(child<LayerNorm>(*this, "sa_layer_norm", shape.width, kEpsilon)),
        feed_forward_(child<FeedForward>(*this, "ffn", shape, activation)),
        norm_(child<LayerNorm>(*this, "output_layer_norm", shape.width, kEpsilon)) {}

  Tensor operator()(const Tensor& x, const Surroundings& with) const {
    Tensor attended = (*attention_)(x, with);
    attended = (*attention_norm_)(attended + x);
    Tensor out = (*feed_forward_)(attended);
    out = (*norm_)(out + attended);
    return out;
  }

 private:
  const std::shared_ptr<SelfAttention> attention_;
  const std::shared_ptr<LayerNorm> attention_norm_;
  const std::shared_ptr<FeedForward> feed_forward_;
  const std::shared_ptr<LayerNorm> norm_;
};

class Transformer : public torch::nn::Module {
 public:
  explicit Transformer(const Shape& shape) : layers(child<nn::List<Block>>(*this, "layer")) {
    const nn::Activation function = nn::activation(shape.function);
    for (std::int64_t i = 0; i < shape.layers; ++i)
      layers->add(std::make_shared<Block>(shape, function));
  }

  const std::shared_ptr<nn::List<Block>> layers;
};

// DistilBertModel.
class Encoder : public torch::nn::Module {
 public:
  explicit Encoder(const ModelConfig& config)
      : embeddings_(child<Embeddings>(*this, "embeddings", config, Shape(config))),
        transformer_(child<Transformer>(*this, "transformer", Shape(config))) {}

  using RunLayer = std::function<Tensor(std::size_t, const std::function<Tensor(const Tensor&)>&,
                                        const Tensor&)>;

  Tensor operator()(const Batch& batch, Attention attention, const RunLayer& run_layer) const {
    const Tensor embedded = (*embeddings_)(batch.tokens);
    auto with = std::make_shared<Surroundings>();
    with->attention = attention;
    with->mask = batch.mask.defined() ? batch.mask : ones_mask(batch.tokens);
    if (attention == Attention::sdpa) with->mask = sdpa_mask(batch, embedded.scalar_type(), false);
    Tensor states = embedded;
    for (std::size_t i = 0; i < transformer_->layers->size(); ++i) {
      const auto layer = (*transformer_->layers)[i];
      states = run_layer(
          i, [layer, with](const Tensor& x) { return (*layer)(x, *with); }, states);
    }
    return states;
  }

  [[nodiscard]] const Tensor& embedding() const { return embeddings_->words(); }

 private:
  const std::shared_ptr<Embeddings> embeddings_;
  const std::shared_ptr<Transformer> transformer_;
};

class WithEncoder : public Net {
 protected:
  WithEncoder(const ModelConfig& config, Task task, const Settings& settings)
      : Net(config, task, settings),
        shape_(config),
        encoder_(child<Encoder>(*this, "distilbert", config)) {}

  [[nodiscard]] Tensor states_of(const Batch& batch) const {
    return (*encoder_)(batch, settings().attention,
                       [this](std::size_t i, const auto& layer, const Tensor& x) {
                         return run_layer(i, layer, x);
                       });
  }

  const Shape shape_;
  const std::shared_ptr<Encoder> encoder_;
};

class MaskedLm : public WithEncoder {
 public:
  MaskedLm(const ModelConfig& config, Task task, const Settings& settings)
      : WithEncoder(config, task, settings),
        activation_(nn::activation(shape_.function)),
        transform_(child<Linear>(*this, "vocab_transform", shape_.width, shape_.width)),
        norm_(child<LayerNorm>(*this, "vocab_layer_norm", shape_.width, kEpsilon)),
        projector_(
            config.flag("tie_word_embeddings")
                ? child<Linear>(*this, "vocab_projector", encoder_->embedding())
                : child<Linear>(*this, "vocab_projector", shape_.width, shape_.vocabulary, false)) {
    projector_->bias = projector_->register_parameter("bias", at::empty({shape_.vocabulary}));
  }

  Output run(const Batch& batch) override {
    Output output;
    const Tensor states = states_of(batch);
    if (chunks_loss(batch)) {
      output.loss = chunked_token_loss(
          [self = shared_from_this(), this](const Tensor& x) { return logits_of(x); }, states,
          batch.labels, settings().loss_chunk);
      return output;
    }
    output.logits = logits_of(states);
    if (batch.labels.defined()) output.loss = token_loss(output.logits, batch.labels);
    return output;
  }

 private:
  [[nodiscard]] Tensor logits_of(const Tensor& states) const {
    Tensor logits = (*transform_)(states);
    logits = activation_(logits);
    logits = (*norm_)(logits);
    return (*projector_)(logits);
  }

  const nn::Activation activation_;
  const std::shared_ptr<Linear> transform_;
  const std::shared_ptr<LayerNorm> norm_;
  const std::shared_ptr<Linear> projector_;
};

class SequenceClassifier : public WithEncoder {
 public:
  SequenceClassifier(const ModelConfig& config, Task task, const Settings& settings)
      : WithEncoder(config, task, settings),
        dropout_(config.number("seq_classif_dropout")),
        pre_(child<Linear>(*this, "pre_classifier", shape_.width, shape_.width)),
        classifier_(child<Linear>(*this, "classifier", shape_.width, config.labels())) {}

  Output run(const Batch& batch) override {
    Output output;
    const Tensor states = states_of(batch);
    Tensor pooled = states.select(1, 0);
    pooled = (*pre_)(pooled);
    pooled = at::relu(pooled);
    pooled = at::dropout(pooled, dropout_, is_training());
    output.logits = (*classifier_)(pooled);
    if (batch.labels.defined())
      output.loss = classification_loss(output.logits, batch.labels, config());
    return output;
  }

 private:
  const double dropout_;
  const std::shared_ptr<Linear> pre_, classifier_;
};

}  // namespace
}  // namespace distilbert

Build distilbert_family() {
  return [](const model::ModelConfig& config, Task task,
            const Settings& settings) -> std::shared_ptr<Model> {
    if (task == Task::sequence_classification)
      return std::make_shared<distilbert::SequenceClassifier>(config, task, settings);
    return std::make_shared<distilbert::MaskedLm>(config, task, settings);
  };
}

}  // namespace headroom::models::detail
