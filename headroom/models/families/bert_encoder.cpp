// Python frees a temporary after the operation that used it, and a function's variables when the
// function returns. This code does the same.
#include "headroom/models/families/bert_encoder.h"

#include <ATen/ATen.h>

#include <cmath>

#include "headroom/base/error.h"
#include "headroom/models/detail/attention.h"
#include "headroom/models/detail/older_masks.h"

namespace headroom::models::detail {

using model::ModelConfig;
using nn::LayerNorm;
using nn::Linear;
using nn::Tensors;

class BertEmbeddings : public torch::nn::Module {
 public:
  BertEmbeddings(const BertShape& shape, const Here& here)
      : shape_(shape),
        words_(here.words(*this, "word_embeddings", shape.vocabulary, shape.width, shape.padding)) {
    if (!here.begins()) return;
    places_ = child<nn::Embedding>(*this, "position_embeddings", shape.positions, shape.width,
                                   shape.roberta ? shape.padding : -1);
    segments_ = child<nn::Embedding>(*this, "token_type_embeddings", shape.segments, shape.width);
    norm_ = child<LayerNorm>(*this, "LayerNorm", shape.width, shape.epsilon);
    position_ids_ = register_buffer(
        "position_ids", at::arange(shape.positions, at::dtype(at::kLong)).expand({1, -1}));
    segment_ids_ =
        register_buffer("token_type_ids", at::zeros({1, shape.positions}, at::dtype(at::kLong)));
  }

  Tensor operator()(const Tensor& tokens, const LayerInputs& with) const {
    const std::int64_t rows = tokens.size(0), length = tokens.size(1);
    const Tensor positions = shape_.roberta ? counted(tokens) : position_ids_.slice(1, 0, length);
    const Tensor segment_ids = segment_ids_.slice(1, 0, length).expand({rows, length});
    const Tensor words = (*words_)(tokens);
    const Tensor segments = (*segments_)(segment_ids);
    Tensor embedded = words + segments;
    const Tensor places = (*places_)(positions);
    if (with.newest())
      embedded = embedded + places;
    else
      embedded += places;
    embedded = (*norm_)(embedded);
    return at::dropout(embedded, shape_.dropout, is_training());
  }

  [[nodiscard]] const Tensor& words() const { return words_->weight; }

 private:
  // Positions start after the padding token's number, which padding itself gets as its position.
  Tensor counted(const Tensor& tokens) const {
    if (tokens.size(1) + shape_.padding + 1 > shape_.positions)
      throw UsageError(
          expectation("batch",
                      "at most " + std::to_string(shape_.positions - shape_.padding - 1) +
                          " tokens a row (RoBERTa's positions begin behind its `pad_token_id`)",
                      std::to_string(tokens.size(1)), "a shorter --seq"));
    const Tensor mask = tokens.ne(shape_.padding).to(at::kInt);
    Tensor counts = mask.cumsum(1);
    counts = counts.to(at::kInt);
    counts = counts + 0;
    counts = counts * mask;
    return counts.to(at::kLong) + shape_.padding;
  }

  const BertShape shape_;
  const std::shared_ptr<nn::Embedding> words_;
  std::shared_ptr<nn::Embedding> places_, segments_;
  std::shared_ptr<LayerNorm> norm_;
  Tensor position_ids_, segment_ids_;
};

namespace {

// The states, and in the eager form the attention weights. Layers hold them until they return; in
// 4.57 they pass them up to the encoder, which holds them until the next layer has run.
Tensors with_shares(Tensor states, const Tensors& of_attention) {
  Tensors result = of_attention;
  result[0] = std::move(states);
  return result;
}

class SelfAttention : public torch::nn::Module {
 public:
  explicit SelfAttention(const BertShape& shape)
      : shape_(shape),
        query_(child<Linear>(*this, "query", shape.width, shape.width)),
        key_(child<Linear>(*this, "key", shape.width, shape.width)),
        value_(child<Linear>(*this, "value", shape.width, shape.width)) {}

  Tensors operator()(const Tensor& states, const LayerInputs& with) const {
    const std::int64_t width = shape_.width / shape_.heads;
    const Tensor q = heads_of((*query_)(states), width);
    Tensor k = heads_of((*key_)(states), width), v = heads_of((*value_)(states), width);
    keep(with.cache, k, v);
    if (with.attention == Attention::eager) return eager_form(q, k, v, with.mask);
    AttentionOptions options;
    options.dropout = is_training() ? shape_.attention_dropout : 0;
    options.is_causal = shape_.decoder && !with.mask.defined() && q.size(2) > 1;
    return {sdpa(q, k, v, with.mask, options).reshape(states.sizes())};
  }

 private:
  Tensors eager_form(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask) const {
    Tensor scores = at::matmul(q, k.transpose(-1, -2));
    scores = scores / std::sqrt(static_cast<double>(q.size(-1)));
    if (mask.defined()) scores = scores + mask;
    Tensor shares = at::softmax(scores, -1);
    shares = at::dropout(shares, shape_.attention_dropout, is_training());
    Tensor out = at::matmul(shares, v);
    out = out.permute({0, 2, 1, 3}).contiguous();
    return {out.view({out.size(0), out.size(1), shape_.width}), shares};
  }

  const BertShape shape_;
  const std::shared_ptr<Linear> query_, key_, value_;
};

// BertSelfOutput and BertOutput: a projection, and a norm of its sum with the residual.
class AddedOutput : public torch::nn::Module {
 public:
  AddedOutput(const BertShape& shape, std::int64_t in)
      : dropout_(shape.dropout),
        dense_(child<Linear>(*this, "dense", in, shape.width)),
        norm_(child<LayerNorm>(*this, "LayerNorm", shape.width, shape.epsilon)) {}

  Tensor operator()(const Tensor& x, const Tensor& before) const {
    Tensor states = (*dense_)(x);
    states = at::dropout(states, dropout_, is_training());
    return (*norm_)(states + before);
  }

 private:
  const double dropout_;
  const std::shared_ptr<Linear> dense_;
  const std::shared_ptr<LayerNorm> norm_;
};

class BertAttention : public torch::nn::Module {
 public:
  explicit BertAttention(const BertShape& shape)
      : self_(child<SelfAttention>(*this, "self", shape)),
        output_(child<AddedOutput>(*this, "output", shape, shape.width)) {}

  Tensors operator()(const Tensor& states, const LayerInputs& with) const {
    const Tensors attended = (*self_)(states, with);
    return with_shares((*output_)(attended[0], states), attended);
  }

 private:
  const std::shared_ptr<SelfAttention> self_;
  const std::shared_ptr<AddedOutput> output_;
};

class Intermediate : public torch::nn::Module {
 public:
  Intermediate(const BertShape& shape, nn::Activation activation)
      : dense_(child<Linear>(*this, "dense", shape.width, shape.inner)),
        activation_(std::move(activation)) {}

  Tensor operator()(const Tensor& x) const {
    Tensor inner = (*dense_)(x);
    inner = activation_(inner);
    return inner;
  }

 private:
  const std::shared_ptr<Linear> dense_;
  const nn::Activation activation_;
};

}  // namespace

class BertLayer : public torch::nn::Module {
 public:
  BertLayer(const BertShape& shape, const nn::Activation& activation)
      : chunk_(shape.chunk),
        attention_(child<BertAttention>(*this, "attention", shape)),
        intermediate_(child<Intermediate>(*this, "intermediate", shape, activation)),
        output_(child<AddedOutput>(*this, "output", shape, shape.inner)) {}

  Tensors operator()(const Tensor& states, const LayerInputs& with) const {
    const Tensors attended = (*attention_)(states, with);
    const auto feed_forward = [this](const Tensor& x) {
      const Tensor inner = (*intermediate_)(x);
      return (*output_)(inner, x);
    };
    return with_shares(in_chunks(feed_forward, chunk_, attended[0]), attended);
  }

 private:
  const std::int64_t chunk_;
  const std::shared_ptr<BertAttention> attention_;
  const std::shared_ptr<Intermediate> intermediate_;
  const std::shared_ptr<AddedOutput> output_;
};

BertModel::BertModel(const ModelConfig& config, const Here& here, bool with_pooler)
    : shape_(config),
      embeddings_(child<BertEmbeddings>(*this, "embeddings", shape_, here)),
      layers_(child<nn::List<BertLayer>>(*child<torch::nn::Module>(*this, "encoder"), "layer")) {
  const nn::Activation function = nn::activation(shape_.function);
  for (std::int64_t i = 0; i < shape_.layers; ++i)
    here.add(*layers_, i, [&] { return std::make_shared<BertLayer>(shape_, function); });
  if (!with_pooler || !here.ends()) return;
  const auto pooler = child<torch::nn::Module>(*this, "pooler");
  pooler_ = child<Linear>(*pooler, "dense", shape_.width, shape_.width);
}

BertStates BertModel::operator()(const Batch& batch, const Net& net, Cache* cache) const {
  const auto with = std::make_shared<LayerInputs>();
  with->attention = net.settings().attention;
  with->transformers = net.settings().transformers;
  if (shape_.decoder) with->cache = cache;
  const Tensor embedded =
      net.here().begins() ? (*embeddings_)(batch.tokens, *with) : batch.given.at(0);
  const at::ScalarType type = embedded.scalar_type();
  with->mask = with->newest() ? mask_of(batch, *with, type) : older_mask_of(batch, *with, type);
  BertStates result;
  result.states = with->newest() ? through_layers(net, *layers_, with, embedded)
                                 : through_layers_with_weights(net, *layers_, with, embedded);
  if (!pooler_) return result;
  result.pooled = (*pooler_)(result.states.select(1, 0));
  result.pooled = at::tanh(result.pooled);
  return result;
}

Tensor BertModel::mask_of(const Batch& batch, const LayerInputs& with, at::ScalarType type) const {
  const MaskOptions options = with.mask_options(type);
  const std::int64_t length = batch.tokens.size(1);
  if (!shape_.decoder) return bidirectional_mask(batch, length, options);
  return causal_mask(batch, at::arange(length, batch.tokens.options()), options);
}

Tensor BertModel::older_mask_of(const Batch& batch, const LayerInputs& with,
                                at::ScalarType type) const {
  const Tensor given = batch.mask.defined() ? batch.mask : ones_mask(batch.tokens);
  if (with.attention == Attention::sdpa) return sdpa_mask(batch, type, shape_.decoder);
  return inverted_mask(shape_.decoder ? decoder_mask(given) : given, type);
}

const Tensor& BertModel::embedding() const {
  return embeddings_->words();
}

}  // namespace headroom::models::detail
