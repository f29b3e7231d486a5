// T5 in both versions: 1.0 with a plain feed-forward block, 1.1 with a gated one and a head of its
// own (modeling_t5.py of transformers). A model that transformers 5 makes from a config has no head
// of its own in 1.1 either; one that it loads has, and so has this.
//
// Python frees a temporary after the operation that used it, and a function's variables when the
// function returns. This code does the same.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "headroom/base/error.h"
#include "headroom/models/detail/older_masks.h"
#include "headroom/models/families/t5_attention.h"

namespace headroom::models::detail {
namespace t5 {
namespace {

using model::ModelConfig;
using nn::Linear;
using nn::Tensors;

// T5DenseActDense and T5DenseGatedActDense.
class Dense : public torch::nn::Module {
 public:
  Dense(const T5Shape& shape)
      : dropout_(shape.dropout),
        activation_(nn::activation(shape.function)),
        in_(child<Linear>(*this, shape.gated ? "wi_0" : "wi", shape.width, shape.inner, false)),
        linear_(shape.gated ? child<Linear>(*this, "wi_1", shape.width, shape.inner, false)
                            : nullptr),
        out_(child<Linear>(*this, "wo", shape.inner, shape.width, false)) {}

  Tensor operator()(const Tensor& x) const {
    Tensor states = (*in_)(x);
    states = activation_(states);
    const Tensor gate = linear_ ? states : Tensor();
    const Tensor linear = linear_ ? (*linear_)(x) : Tensor();
    if (linear_) states = gate * linear;
    states = at::dropout(states, dropout_, is_training());
    if (states.scalar_type() != out_->weight.scalar_type())
      states = states.to(out_->weight.scalar_type());
    states = (*out_)(states);
    return states;
  }

 private:
  const double dropout_;
  const nn::Activation activation_;
  const std::shared_ptr<Linear> in_, linear_, out_;
};

// A norm, self or cross attention, and the sum of its input and result.
class SelfAttentionLayer : public torch::nn::Module {
 public:
  SelfAttentionLayer(const T5Shape& shape, T5Attention::Kind kind, bool first)
      : dropout_(shape.dropout),
        cross_(kind == T5Attention::Kind::cross),
        attention_(child<T5Attention>(*this, cross_ ? "EncDecAttention" : "SelfAttention", shape,
                                      kind, first)),
        norm_(child<T5Norm>(*this, "layer_norm", shape)) {}

  // `others`: the encoder's states, used only by cross attention.
  Tensors operator()(const Tensor& states, const Tensor& others, const Tensor& bias,
                     const T5LayerInputs& with) const {
    const Tensor normed = (*norm_)(states);
    Tensors attended = (*attention_)(normed, cross_ ? others : normed, bias, with);
    attended[0] = states + at::dropout(attended[0], dropout_, is_training());
    return attended;
  }

 private:
  const double dropout_;
  const bool cross_;
  const std::shared_ptr<T5Attention> attention_;
  const std::shared_ptr<T5Norm> norm_;
};

class FeedForwardLayer : public torch::nn::Module {
 public:
  FeedForwardLayer(const T5Shape& shape)
      : dropout_(shape.dropout),
        dense_(child<Dense>(*this, "DenseReluDense", shape)),
        norm_(child<T5Norm>(*this, "layer_norm", shape)) {}

  Tensor operator()(const Tensor& states) const {
    Tensor forwarded = (*norm_)(states);
    forwarded = (*dense_)(forwarded);
    return states + at::dropout(forwarded, dropout_, is_training());
  }

 private:
  const double dropout_;
  const std::shared_ptr<Dense> dense_;
  const std::shared_ptr<T5Norm> norm_;
};

// Clamps half precision, which overflows in the larger models.
Tensor clamped(const Tensor& states) {
  if (states.scalar_type() != at::kHalf) return states;
  const double most = std::numeric_limits<c10::Half>::max();
  const Tensor bound =
      at::where(at::isinf(states).any(), at::Scalar(most - 1000), at::Scalar(most));
  return at::clamp(states, -bound, bound);
}

class Block : public torch::nn::Module {
 public:
  Block(const T5Shape& shape, bool decoder, bool first) {
    const auto layers = child<torch::nn::Module>(*this, "layer");
    self_ = child<SelfAttentionLayer>(
        *layers, "0", shape, decoder ? T5Attention::Kind::decoder : T5Attention::Kind::encoder,
        first);
    if (decoder)
      cross_ = child<SelfAttentionLayer>(*layers, "1", shape, T5Attention::Kind::cross, first);
    feed_forward_ = child<FeedForwardLayer>(*layers, decoder ? "2" : "1", shape);
  }

  // Of its weights.
  [[nodiscard]] at::ScalarType type() const { return parameters().front().scalar_type(); }

  // Inputs: states, bias, the encoder's states, the bias of cross attention (then masks, which
  // `with` has too). Results: states and biases.
  Tensors operator()(const Tensors& inputs, const T5LayerInputs& with) const {
    Tensors attended = (*self_)(inputs[0], {}, inputs[1], with);
    Tensor states = clamped(attended[0]);
    if (!cross_) return {clamped((*feed_forward_)(states)), attended[1]};
    const Tensors crossed = (*cross_)(states, inputs[2], inputs[3], with);
    attended.resize(2);  // without its weights
    states = clamped(crossed[0]);
    states = clamped((*feed_forward_)(states));
    return {states, attended[1], crossed[1]};
  }

 private:
  std::shared_ptr<SelfAttentionLayer> self_, cross_;
  std::shared_ptr<FeedForwardLayer> feed_forward_;
};

// What goes from block to block, and so from part to part of a model.
struct Passing {
  Tensor states, bias, encoded, cross_bias;  // `encoded`: the encoder's result

  static Passing from(const Tensors& given) {
    return given.empty() ? Passing() : Passing{given.at(0), given.at(1), given.at(2), given.at(3)};
  }
  [[nodiscard]] Tensors all() const { return {states, bias, encoded, cross_bias}; }
};

// T5Stack: the encoder or the decoder, over the embedding that both share.
class Stack : public torch::nn::Module {
 public:
  // `first`: the number of its first block in the model.
  Stack(const T5Shape& shape, const Here& here, std::int64_t first,
        std::shared_ptr<nn::Embedding> words, bool decoder)
      : decoder_(decoder),
        dropout_(shape.dropout),
        words_(std::move(words)),
        blocks_(child<nn::List<Block>>(*this, "block")) {
    const std::int64_t blocks = decoder ? shape.decoder_layers : shape.encoder_layers;
    begins_ = here.has(first);
    if (here.has(first + blocks - 1)) norm_ = child<T5Norm>(*this, "final_layer_norm", shape);
    for (std::int64_t i = 0; i < blocks; ++i)
      here.add(*blocks_, first + i,
               [&] { return std::make_shared<Block>(shape, decoder, i == 0); });
  }

  // Whether any block is here, and the last one.
  [[nodiscard]] bool is_here() const { return first_block() != nullptr; }
  [[nodiscard]] bool ends() const { return norm_ != nullptr; }

  // `batch` has the encoder's tokens and their mask. Returns the states alone at its end.
  Passing operator()(const Tensor& tokens, const Batch& batch, const Passing& from,
                     T5LayerInputs layer_inputs, const Net& net) const {
    const Tensor embedded = begins_ ? (*words_)(tokens) : from.states;
    layer_inputs.positions = at::arange(tokens.size(1), tokens.options());
    const bool newest = layer_inputs.transformers == Transformers::v5;
    const Masks masks = newest ? masks_of(tokens, batch, layer_inputs)
                               : older_masks_of(tokens, batch.mask, from.encoded, layer_inputs);
    const auto with = std::make_shared<const T5LayerInputs>(std::move(layer_inputs));
    // Python holds all results of the last block until the stack returns.
    const Tensors outputs =
        through_blocks(begins_ ? at::dropout(embedded, dropout_, is_training()) : embedded, from,
                       masks, with, net);
    if (!norm_) return {outputs[0], outputs[1], from.encoded, decoder_ ? outputs[2] : Tensor()};
    const Tensor states = (*norm_)(outputs[0]);
    return {.states = at::dropout(states, dropout_, is_training())};
  }

 private:
  struct Masks {
    Tensor own, encoder;
  };

  [[nodiscard]] Masks masks_of(const Tensor& tokens, const Batch& batch,
                               const T5LayerInputs& with) const {
    const MaskOptions options = {.attention = with.attention, .type = type()};
    if (!decoder_) return {bidirectional_mask(batch, tokens.size(1), options), {}};
    Batch own;
    own.tokens = tokens;
    const Tensor causal = causal_mask(own, with.positions, options);
    return {causal, bidirectional_mask(batch, tokens.size(1), options)};
  }

  [[nodiscard]] Masks older_masks_of(const Tensor& tokens, const Tensor& mask,
                                     const Tensor& encoded, const T5LayerInputs& with) const {
    if (!decoder_) return {inverted_mask(mask.defined() ? mask : ones_mask(tokens), type()), {}};
    const Tensor own = t5_causal_mask(ones_mask(tokens), with.positions, type());
    const Tensor theirs =
        mask.defined() ? mask : at::ones({encoded.size(0), encoded.size(1)}, tokens.options());
    return {own, inverted_mask(theirs, type())};
  }

  [[nodiscard]] const Block* first_block() const {
    const auto found = std::find_if(blocks_->begin(), blocks_->end(),
                                    [](const auto& block) { return block != nullptr; });
    return found == blocks_->end() ? nullptr : found->get();
  }

  // Of the weights.
  [[nodiscard]] at::ScalarType type() const {
    return begins_ ? words_->weight.scalar_type() : first_block()->type();
  }

  // Masks are inputs of a block, because the backward pass frees inputs but not the function's
  // captures.
  Tensors through_blocks(Tensor states, const Passing& from, const Masks& masks,
                         const std::shared_ptr<const T5LayerInputs>& with, const Net& net) const {
    Tensors outputs;
    Tensor bias = from.bias, cross_bias = from.cross_bias;
    for (std::size_t i = 0; i < blocks_->size(); ++i) {
      if (!(*blocks_)[i]) continue;
      const auto run = [block = (*blocks_)[i], with](const Tensors& x) {
        T5LayerInputs own = *with;
        own.mask = x[4];
        own.encoder_mask = x[5];
        return (*block)(x, own);
      };
      outputs = net.run_layer(
          i, run, Tensors{states, bias, from.encoded, cross_bias, masks.own, masks.encoder});
      states = outputs[0];
      bias = outputs[1];
      if (decoder_) cross_bias = outputs[2];
    }
    return outputs;
  }

  const bool decoder_;
  const double dropout_;
  const std::shared_ptr<nn::Embedding> words_;
  const std::shared_ptr<nn::List<Block>> blocks_;
  bool begins_;                   // the first block is here
  std::shared_ptr<T5Norm> norm_;  // after the last one, where that is here
};

class Seq2SeqLm : public Net {
 public:
  Seq2SeqLm(const ModelConfig& config, Task task, const Settings& settings)
      : Net(config, task, settings),
        shape_(config),
        tied_(config.flag("tie_word_embeddings")),
        shared_(here().words(*this, "shared", shape_.vocabulary, shape_.width, -1,
                             here().has(shape_.encoder_layers))),
        encoder_(child<Stack>(*this, "encoder", shape_, here(), 0, shared_, false)),
        decoder_(
            child<Stack>(*this, "decoder", shape_, here(), shape_.encoder_layers, shared_, true)) {
    if (!here().ends()) return;
    head_ = tied_ ? child<Linear>(*this, "lm_head", shared_->weight)
                  : child<Linear>(*this, "lm_head", shape_.width, shape_.vocabulary, false);
  }

  Output run(const Batch& batch) override {
    if (!batch.targets.defined() && !batch.labels.defined())
      throw UsageError(expectation("run", "the decoder's tokens, or labels to make them of",
                                   "neither", "a batch with `targets`"));
    Output output;
    T5LayerInputs with;
    with.attention = settings().attention;
    with.transformers = settings().transformers;
    with.checkpointed = is_training() && settings().checkpointing.how != nn::Recompute::none;
    Passing passing = Passing::from(batch.given);
    if (encoder_->is_here()) {
      passing = (*encoder_)(batch.tokens, batch, passing, with, *this);
      if (encoder_->ends()) passing = {.encoded = passing.states};
    }
    if (passing.encoded.defined()) output.more.push_back(passing.encoded);
    if (!decoder_->is_here()) return {.handed_on = passing.all()};
    const Tensor tokens = batch.targets.defined() ? batch.targets : shifted_right(batch.labels);
    if (keeps_cache()) with.cache = &output.cache;
    const Passing decoded = (*decoder_)(tokens, batch, passing, with, *this);
    if (!here().ends()) return {.handed_on = decoded.all()};
    Tensor states = decoded.states;
    if (tied_) states = states * std::pow(static_cast<double>(shape_.width), -0.5);
    set_logits_and_loss(output, {{}, head_}, states, batch);
    return output;
  }

 private:
  // Shifts labels by one, so that each target token is predicted from those before it.
  Tensor shifted_right(const Tensor& labels) const {
    const std::int64_t length = labels.size(1);
    Tensor tokens = at::zeros(labels.sizes(), labels.options());
    tokens.slice(1, 1).copy_(labels.slice(1, 0, length - 1).clone());
    tokens.select(1, 0).fill_(shape_.start);
    tokens.masked_fill_(tokens == -100, shape_.padding);
    return tokens;
  }

  const T5Shape shape_;
  const bool tied_;
  const std::shared_ptr<nn::Embedding> shared_;
  const std::shared_ptr<Stack> encoder_, decoder_;
  std::shared_ptr<Linear> head_;
};

}  // namespace
}  // namespace t5

Build t5_family() {
  return [](const model::ModelConfig& config, Task task, const Settings& settings) {
    return std::make_shared<t5::Seq2SeqLm>(config, task, settings);
  };
}

}  // namespace headroom::models::detail
