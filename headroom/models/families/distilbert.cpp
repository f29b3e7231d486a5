// DistilBERT (modeling_distilbert.py of transformers).
//
// Python frees a temporary after the operation that used it, and a function's variables when the
// function returns. This code does the same.
#include <ATen/ATen.h>

#include <cmath>

#include "headroom/model/shapes.h"
#include "headroom/models/detail/attention.h"
#include "headroom/models/detail/older_masks.h"

namespace headroom::models::detail {
namespace distilbert {
namespace {

using model::ModelConfig;
using nn::LayerNorm;
using nn::Linear;

constexpr double kEpsilon = 1e-12;  // of every norm; the config has no key for it

using Shape = model::DistilbertShape;

class Embeddings : public torch::nn::Module {
 public:
  Embeddings(const ModelConfig& config, const Shape& shape, Transformers transformers,
             const Here& here)
      : dropout_(shape.dropout),
        words_(here.words(*this, "word_embeddings", shape.vocabulary, shape.width, shape.padding)) {
    if (!here.begins()) return;
    places_ = child<nn::Embedding>(*this, "position_embeddings", shape.positions, shape.width);
    norm_ = child<LayerNorm>(*this, "LayerNorm", shape.width, kEpsilon);
    position_ids_ = register_buffer(
        "position_ids", at::arange(shape.positions, at::dtype(at::kLong)).expand({1, -1}));
    // 4.57 does not train sinusoidal positions.
    if (config.flag("sinusoidal_pos_embds") && transformers == Transformers::v4_57)
      places_->weight.set_requires_grad(false);
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
  const std::shared_ptr<nn::Embedding> words_;
  std::shared_ptr<nn::Embedding> places_;
  std::shared_ptr<LayerNorm> norm_;
  Tensor position_ids_;
};

class SelfAttention : public torch::nn::Module {
 public:
  explicit SelfAttention(const Shape& shape)
      : shape_(shape),
        q_(child<Linear>(*this, "q_lin", shape.width, shape.width)),
        k_(child<Linear>(*this, "k_lin", shape.width, shape.width)),
        v_(child<Linear>(*this, "v_lin", shape.width, shape.width)),
        out_(child<Linear>(*this, "out_lin", shape.width, shape.width)) {}

  // The weights, in the eager form of the newest version.
  Attended operator()(const Tensor& states, const LayerInputs& with) const {
    const std::int64_t width = shape_.width / shape_.heads;
    Tensor q = heads_of((*q_)(states), width);
    const Tensor k = heads_of((*k_)(states), width), v = heads_of((*v_)(states), width);
    if (with.attention == Attention::eager && !with.newest())
      return {older_eager_form(q, k, v, with.mask), {}};
    AttentionOptions options;
    options.dropout = is_training() ? shape_.attention_dropout : 0;
    options.is_causal = false;
    Attended attended = with.attention == Attention::eager
                            ? eager_form(q, k, v, with.mask)
                            : Attended{sdpa(q, k, v, with.mask, options), {}};
    attended.out = (*out_)(attended.out.view(states.sizes()));
    return attended;
  }

 private:
  [[nodiscard]] Attended eager_form(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const Tensor& mask) const {
    Tensor scores = at::matmul(q, k.transpose(2, 3));
    scores = scores / std::sqrt(static_cast<double>(q.size(-1)));
    if (mask.defined()) scores = scores + mask;
    Tensor shares = at::softmax(scores, -1);
    scores.reset();
    shares = at::dropout(shares, shape_.attention_dropout, is_training());
    const Tensor out = at::matmul(shares, v);
    return {out.transpose(1, 2).contiguous(), shares};
  }

  // `given`: [batch, length], not additive.
  Tensor older_eager_form(Tensor& q, const Tensor& k, const Tensor& v, const Tensor& given) const {
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

class Block : public torch::nn::Module {
 public:
  Block(const Shape& shape, const nn::Activation& activation)
      : attention_(child<SelfAttention>(*this, "attention", shape)),
        attention_norm_(child<LayerNorm>(*this, "sa_layer_norm", shape.width, kEpsilon)),
        feed_forward_(child<Mlp<Linear>>(*this, "ffn", "lin1", "lin2", shape.width, shape.inner,
                                         activation, shape.dropout)),
        norm_(child<LayerNorm>(*this, "output_layer_norm", shape.width, kEpsilon)),
        chunk_(shape.chunk) {}

  Tensor operator()(const Tensor& x, const LayerInputs& with) const {
    Attended seen = (*attention_)(x, with);
    Tensor attended = std::move(seen.out);
    attended = (*attention_norm_)(attended + x);
    const auto feed_forward = [this](const Tensor& part) { return (*feed_forward_)(part); };
    Tensor out = in_chunks(feed_forward, chunk_, attended);
    out = (*norm_)(out + attended);
    return out;
  }

 private:
  const std::shared_ptr<SelfAttention> attention_;
  const std::shared_ptr<LayerNorm> attention_norm_;
  const std::shared_ptr<Mlp<Linear>> feed_forward_;
  const std::shared_ptr<LayerNorm> norm_;
  const std::int64_t chunk_;
};

// DistilBertModel.
class Encoder : public torch::nn::Module {
 public:
  Encoder(const ModelConfig& config, Transformers transformers, const Here& here)
      : embeddings_(
            child<Embeddings>(*this, "embeddings", config, Shape(config), transformers, here)),
        layers_(child<nn::List<Block>>(*child<torch::nn::Module>(*this, "transformer"), "layer")) {
    const Shape shape(config);
    const nn::Activation function = nn::activation(shape.function);
    for (std::int64_t i = 0; i < shape.layers; ++i)
      here.add(*layers_, i, [&] { return std::make_shared<Block>(shape, function); });
  }

  Tensor operator()(const Batch& batch, const Net& net) const {
    const Tensor embedded = net.here().begins() ? (*embeddings_)(batch.tokens) : batch.given.at(0);
    auto with = std::make_shared<LayerInputs>();
    with->attention = net.settings().attention;
    with->transformers = net.settings().transformers;
    with->mask = mask_of(batch, *with, embedded.scalar_type());
    return through_layers(net, *layers_, with, embedded);
  }

  [[nodiscard]] const Tensor& embedding() const { return embeddings_->words(); }

 private:
  static Tensor mask_of(const Batch& batch, const LayerInputs& with, at::ScalarType type) {
    if (with.newest())
      return bidirectional_mask(batch, batch.tokens.size(1), with.mask_options(type));
    if (with.attention == Attention::sdpa) return sdpa_mask(batch, type, false);
    return batch.mask.defined() ? batch.mask : ones_mask(batch.tokens);
  }

  const std::shared_ptr<Embeddings> embeddings_;
  const std::shared_ptr<nn::List<Block>> layers_;
};

class WithEncoder : public Net {
 protected:
  WithEncoder(const ModelConfig& config, Task task, const Settings& settings)
      : Net(config, task, settings),
        shape_(config),
        encoder_(child<Encoder>(*this, "distilbert", config, settings.transformers, here())) {}

  const Shape shape_;
  const std::shared_ptr<Encoder> encoder_;
};

class MaskedLm : public WithEncoder {
 public:
  MaskedLm(const ModelConfig& config, Task task, const Settings& settings)
      : WithEncoder(config, task, settings), activation_(nn::activation(shape_.function)) {
    if (!here().ends()) return;
    transform_ = child<Linear>(*this, "vocab_transform", shape_.width, shape_.width);
    norm_ = child<LayerNorm>(*this, "vocab_layer_norm", shape_.width, kEpsilon);
    projector_ =
        config.flag("tie_word_embeddings")
            ? child<Linear>(*this, "vocab_projector", encoder_->embedding())
            : child<Linear>(*this, "vocab_projector", shape_.width, shape_.vocabulary, false);
    projector_->bias = projector_->register_parameter("bias", at::empty({shape_.vocabulary}));
  }

  Output run(const Batch& batch) override {
    Output output;
    const Tensor states = (*encoder_)(batch, *this);
    if (!here().ends()) return handing_on(states);
    const auto inner = [self = shared_from_this(), this](const Tensor& x) { return inner_of(x); };
    set_logits_and_loss(output, {inner, projector_}, states, batch);
    return output;
  }

 private:
  // The states before the projection to logits.
  [[nodiscard]] Tensor inner_of(const Tensor& states) const {
    Tensor x = (*transform_)(states);
    x = activation_(x);
    return (*norm_)(x);
  }

  const nn::Activation activation_;
  std::shared_ptr<Linear> transform_;
  std::shared_ptr<LayerNorm> norm_;
  std::shared_ptr<Linear> projector_;
};

class SequenceClassifier : public WithEncoder {
 public:
  SequenceClassifier(const ModelConfig& config, Task task, const Settings& settings)
      : WithEncoder(config, task, settings), dropout_(config.number("seq_classif_dropout")) {
    if (!here().ends()) return;
    pre_ = child<Linear>(*this, "pre_classifier", shape_.width, shape_.width);
    classifier_ = child<Linear>(*this, "classifier", shape_.width, config.labels());
  }

  Output run(const Batch& batch) override {
    const Tensor states = (*encoder_)(batch, *this);
    if (!here().ends()) return handing_on(states);
    Tensor pooled = states.select(1, 0);
    pooled = (*pre_)(pooled);
    pooled = at::relu(pooled);
    pooled = at::dropout(pooled, dropout_, is_training());
    return classified((*classifier_)(pooled), batch);
  }

 private:
  const double dropout_;
  std::shared_ptr<Linear> pre_, classifier_;
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
