// BERT and RoBERTa with their heads (modeling_bert.py and modeling_roberta.py of transformers
// 4.57.6).
#include <ATen/ATen.h>

#include "headroom/models/detail/family.h"
#include "headroom/models/detail/loss.h"
#include "headroom/models/families/bert_encoder.h"

namespace headroom::models::detail {
namespace bert {
namespace {

using model::ModelConfig;
using nn::LayerNorm;
using nn::Linear;

// Makes the layer that computes logits: the word embedding's weight if tied, and a bias of its own.
std::shared_ptr<Linear> decoder_of(torch::nn::Module& head, const ModelConfig& config,
                                   const Tensor& embedding, const Tensor& bias) {
  auto decoder = config.flag("tie_word_embeddings")
                     ? child<Linear>(head, "decoder", embedding)
                     : child<Linear>(head, "decoder", embedding.size(1), embedding.size(0), false);
  decoder->bias = bias;
  return decoder;
}

// BertPredictionHeadTransform.
class Transform : public torch::nn::Module {
 public:
  explicit Transform(const ModelConfig& config)
      : dense_(child<Linear>(*this, "dense", config.count("hidden_size"),
                             config.count("hidden_size"))),
        norm_(child<LayerNorm>(*this, "LayerNorm", config.count("hidden_size"),
                               config.number("layer_norm_eps"))),
        activation_(nn::activation(config.text("hidden_act"))) {}

  Tensor operator()(const Tensor& states) const {
    Tensor x = (*dense_)(states);
    x = activation_(x);
    x = (*norm_)(x);
    return x;
  }

 private:
  const std::shared_ptr<Linear> dense_;
  const std::shared_ptr<LayerNorm> norm_;
  const nn::Activation activation_;
};

class Predictions : public torch::nn::Module {
 public:
  Predictions(const ModelConfig& config, const Tensor& embedding)
      : bias_(register_parameter("bias", at::empty({embedding.size(0)}))),
        transform_(child<Transform>(*this, "transform", config)),
        decoder_(decoder_of(*this, config, embedding, bias_)) {}

  Tensor operator()(const Tensor& states) const {
    Tensor x = (*transform_)(states);
    x = (*decoder_)(x);
    return x;
  }

 private:
  const Tensor bias_;
  const std::shared_ptr<Transform> transform_;
  const std::shared_ptr<Linear> decoder_;
};

class BertHead : public torch::nn::Module {
 public:
  BertHead(const ModelConfig& config, const Tensor& embedding)
      : predictions_(child<Predictions>(*this, "predictions", config, embedding)) {}
  Tensor operator()(const Tensor& states) const { return (*predictions_)(states); }

 private:
  const std::shared_ptr<Predictions> predictions_;
};

class RobertaHead : public torch::nn::Module {
 public:
  RobertaHead(const ModelConfig& config, const Tensor& embedding)
      : bias_(register_parameter("bias", at::empty({embedding.size(0)}))),
        dense_(child<Linear>(*this, "dense", embedding.size(1), embedding.size(1))),
        norm_(child<LayerNorm>(*this, "layer_norm", embedding.size(1),
                               config.number("layer_norm_eps"))),
        decoder_(decoder_of(*this, config, embedding, bias_)) {}

  Tensor operator()(const Tensor& states) const {
    Tensor x = (*dense_)(states);
    x = at::gelu(x);  // regardless of `hidden_act`
    x = (*norm_)(x);
    x = (*decoder_)(x);
    return x;
  }

 private:
  const Tensor bias_;
  const std::shared_ptr<Linear> dense_;
  const std::shared_ptr<LayerNorm> norm_;
  const std::shared_ptr<Linear> decoder_;
};

double classifier_dropout(const ModelConfig& config) {
  return config.number(config.is_null("classifier_dropout") ? "hidden_dropout_prob"
                                                            : "classifier_dropout");
}

// BERT's classifier, on the pooled first token.
class BertClassifier : public Linear {
 public:
  static constexpr bool kPooled = true;
  explicit BertClassifier(const ModelConfig& config)
      : Linear(config.count("hidden_size"), config.labels()),
        dropout_(classifier_dropout(config)) {}

  Tensor operator()(const BertStates& from) const {
    const Tensor pooled = at::dropout(from.pooled, dropout_, is_training());
    return Linear::operator()(pooled);
  }

 private:
  const double dropout_;
};

// RoBERTa's classifier, with a layer of its own instead of the pooler.
class RobertaClassifier : public torch::nn::Module {
 public:
  static constexpr bool kPooled = false;
  explicit RobertaClassifier(const ModelConfig& config)
      : dense_(child<Linear>(*this, "dense", config.count("hidden_size"),
                             config.count("hidden_size"))),
        out_(child<Linear>(*this, "out_proj", config.count("hidden_size"), config.labels())),
        dropout_(classifier_dropout(config)) {}

  Tensor operator()(const BertStates& from) const {
    Tensor x = from.states.select(1, 0);
    x = at::dropout(x, dropout_, is_training());
    x = (*dense_)(x);
    x = at::tanh(x);
    x = at::dropout(x, dropout_, is_training());
    x = (*out_)(x);
    return x;
  }

 private:
  const std::shared_ptr<Linear> dense_, out_;
  const double dropout_;
};

// The base model under the name of its type. Subclasses add a head.
class WithBert : public Net {
 protected:
  WithBert(const ModelConfig& config, Task task, const Settings& settings, bool with_pooler)
      : Net(config, task, settings),
        bert_(child<BertModel>(*this, config.type(), config, with_pooler)) {}

  [[nodiscard]] BertStates states_of(const Batch& batch, Cache* cache) const {
    return (*bert_)(batch, settings().attention, cache,
                    [this](std::size_t i, const auto& layer, const nn::Tensors& x) {
                      return run_layer(i, layer, x);
                    });
  }
  [[nodiscard]] const Tensor& embedding() const { return bert_->embedding(); }

 private:
  const std::shared_ptr<BertModel> bert_;
};

template <typename Head>
class LanguageModel : public WithBert {
 public:
  LanguageModel(const ModelConfig& config, Task task, const Settings& settings, const char* head)
      : WithBert(config, task, settings, false),
        head_(child<Head>(*this, head, config, embedding())) {}

  Output run(const Batch& batch) override {
    Output output;
    // With labels nothing is generated, and transformers keeps no cache.
    const bool keeps = keeps_cache() && !batch.labels.defined();
    const BertStates from = states_of(batch, keeps ? &output.cache : nullptr);
    if (chunks_loss(batch)) {
      const auto head = [head = head_](const Tensor& x) { return (*head)(x); };
      const auto loss = task() == Task::causal_lm ? chunked_causal_lm_loss : chunked_token_loss;
      output.loss = loss(head, from.states, batch.labels, settings().loss_chunk);
      return output;
    }
    output.logits = (*head_)(from.states);
    if (!batch.labels.defined()) return output;
    output.loss = task() == Task::causal_lm
                      ? causal_lm_loss(output.logits, batch.labels, output.logits.size(-1))
                      : token_loss(output.logits, batch.labels);
    return output;
  }

 private:
  const std::shared_ptr<Head> head_;
};

template <typename Classifier>
class SequenceClassifier : public WithBert {
 public:
  SequenceClassifier(const ModelConfig& config, Task task, const Settings& settings)
      : WithBert(config, task, settings, Classifier::kPooled),
        classifier_(child<Classifier>(*this, "classifier", config)) {}

  Output run(const Batch& batch) override {
    Output output;
    const BertStates from = states_of(batch, nullptr);
    output.logits = (*classifier_)(from);
    if (batch.labels.defined())
      output.loss = classification_loss(output.logits, batch.labels, config());
    return output;
  }

 private:
  const std::shared_ptr<Classifier> classifier_;
};

std::shared_ptr<Model> build_bert(const ModelConfig& config, Task task, const Settings& settings) {
  const bool roberta = config.type() == "roberta";
  if (task == Task::sequence_classification && roberta)
    return std::make_shared<SequenceClassifier<RobertaClassifier>>(config, task, settings);
  if (task == Task::sequence_classification)
    return std::make_shared<SequenceClassifier<BertClassifier>>(config, task, settings);
  if (roberta)
    return std::make_shared<LanguageModel<RobertaHead>>(config, task, settings, "lm_head");
  return std::make_shared<LanguageModel<BertHead>>(config, task, settings, "cls");
}

}  // namespace
}  // namespace bert

Build bert_family() {
  return bert::build_bert;
}

}  // namespace headroom::models::detail
