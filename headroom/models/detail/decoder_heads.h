// The heads that transformers puts on a decoder: one predicts the next token, one classifies a row.
//
// A decoder is a torch::nn::Module made from a ModelConfig, with
//   Tensor operator()(const Batch&, const Pass&) const;   // hidden states [batch, length, width]
//   const Tensor& embedding() const;                      // the weight of the token embedding
//   std::int64_t width() const;                           // of its hidden states
#pragma once

#include <functional>
#include <memory>

#include "headroom/models/detail/family.h"
#include "headroom/models/detail/last_token.h"
#include "headroom/models/detail/loss.h"

namespace headroom::models::detail {

// The options of one forward pass.
struct Pass {
  Attention attention = Attention::sdpa;
  Cache* cache = nullptr;  // null: keys and values are not kept
  std::function<Tensor(std::size_t, const std::function<Tensor(const Tensor&)>&, const Tensor&)>
      run_layer;
  // For a layer with several inputs or results.
  std::function<nn::Tensors(std::size_t, const std::function<nn::Tensors(const nn::Tensors&)>&,
                            const nn::Tensors&)>
      run_layer_of_several;
};

struct HeadOptions {
  const char* decoder;       // its name on the hub
  const char* head;          // the name of the head that predicts the next token
  bool with_bias = false;    // of that head
  bool casts_twice = false;  // GPT-Neo: logits to float before the loss, and both back after it
};

template <typename Decoder>
class DecoderNet : public Net {
 protected:
  DecoderNet(const model::ModelConfig& config, Task task, const Settings& settings,
             const HeadOptions& options)
      : Net(config, task, settings),
        options_(options),
        decoder_(child<Decoder>(*this, options.decoder, config)) {}

  [[nodiscard]] Tensor states_of(const Batch& batch, Output& output) const {
    Pass pass;
    pass.attention = settings().attention;
    if (keeps_cache()) pass.cache = &output.cache;
    pass.run_layer = [this](std::size_t i, const auto& layer, const Tensor& x) {
      return this->run_layer(i, layer, x);
    };
    pass.run_layer_of_several = [this](std::size_t i, const auto& layer, const nn::Tensors& x) {
      return this->run_layer(i, layer, x);
    };
    return (*decoder_)(batch, pass);
  }
  [[nodiscard]] const HeadOptions& options() const { return options_; }
  [[nodiscard]] const Decoder& decoder() const { return *decoder_; }

 private:
  const HeadOptions options_;
  const std::shared_ptr<Decoder> decoder_;
};

template <typename Decoder>
class DecoderLm : public DecoderNet<Decoder> {
 public:
  DecoderLm(const model::ModelConfig& config, const Settings& settings, const HeadOptions& options)
      : DecoderNet<Decoder>(config, Task::causal_lm, settings, options),
        vocabulary_(config.at_least_1("vocab_size")),
        head_(made_head(config.flag("tie_word_embeddings"))) {}

  Output run(const Batch& batch) override {
    Output output;
    const Tensor states = this->states_of(batch, output);
    if (this->chunks_loss(batch)) {
      output.loss = chunked_causal_lm_loss([head = head_](const Tensor& x) { return (*head)(x); },
                                           states, batch.labels, this->settings().loss_chunk);
      if (this->options().casts_twice) output.loss = output.loss.to(states.scalar_type());
      return output;
    }
    output.logits = (*head_)(states);
    if (!batch.labels.defined()) return output;
    if (this->options().casts_twice) output.logits = output.logits.to(at::kFloat);
    output.loss = causal_lm_loss(output.logits, batch.labels, vocabulary_);
    if (!this->options().casts_twice) return output;
    output.logits = output.logits.to(states.scalar_type());
    output.loss = output.loss.to(states.scalar_type());
    return output;
  }

 private:
  std::shared_ptr<nn::Linear> made_head(bool tied) {
    const HeadOptions& options = this->options();
    if (!tied)
      return child<nn::Linear>(*this, options.head, this->decoder().width(), vocabulary_,
                               options.with_bias);
    auto head = child<nn::Linear>(*this, options.head, this->decoder().embedding());
    if (options.with_bias) head->bias = head->register_parameter("bias", at::empty({vocabulary_}));
    return head;
  }

  const std::int64_t vocabulary_;
  const std::shared_ptr<nn::Linear> head_;
};

template <typename Decoder>
class DecoderClassifier : public DecoderNet<Decoder> {
 public:
  DecoderClassifier(const model::ModelConfig& config, const Settings& settings,
                    const HeadOptions& options)
      : DecoderNet<Decoder>(config, Task::sequence_classification, settings, options),
        score_(child<nn::Linear>(*this, "score", this->decoder().width(), config.labels(), false)) {
  }

  Output run(const Batch& batch) override {
    Output output;
    const Tensor states = this->states_of(batch, output);
    const Tensor everywhere = (*score_)(states);
    output.logits = at_last_token(everywhere, batch.tokens, this->config());
    if (batch.labels.defined())
      output.loss = classification_loss(output.logits, batch.labels, this->config());
    return output;
  }

 private:
  const std::shared_ptr<nn::Linear> score_;
};

template <typename Decoder>
Build decoder_family(const HeadOptions& options) {
  return [options](const model::ModelConfig& config, Task task,
                   const Settings& settings) -> std::shared_ptr<Model> {
    if (task == Task::causal_lm)
      return std::make_shared<DecoderLm<Decoder>>(config, settings, options);
    return std::make_shared<DecoderClassifier<Decoder>>(config, settings, options);
  };
}

}  // namespace headroom::models::detail
