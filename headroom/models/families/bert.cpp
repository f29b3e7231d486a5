// BERT and RoBERTa with their heads (modeling_bert.py and modeling_roberta.py of transformers).
#include <ATen/ATen.h>

#include "headroom/models/detail/family.h"
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

// BertLMPredictionHead and RobertaLMHead.
class LmHead : public torch::nn::Module {
 public:
  LmHead(const ModelConfig& config, const BertShape& shape, const Tensor& embedding)
      : bias_(register_parameter("bias", at::empty({embedding.size(0)}))) {
    torch::nn::Module& transform =
        shape.roberta ? *this : *child<torch::nn::Module>(*this, "transform");
    dense_ = child<Linear>(transform, "dense", shape.width, shape.width);
    norm_ = child<LayerNorm>(transform, shape.roberta ? "layer_norm" : "LayerNorm", shape.width,
                             shape.epsilon);
    activation_ = nn::activation(shape.roberta ? "gelu" : shape.function);
    decoder_ = decoder_of(*this, config, embedding, bias_);
  }

  // The states before the projection to logits.
  Tensor inner(const Tensor& states) const {
    Tensor x = (*dense_)(states);
    x = activation_(x);
    return (*norm_)(x);
  }
  [[nodiscard]] const std::shared_ptr<Linear>& projection() const { return decoder_; }

 private:
  const Tensor bias_;
  std::shared_ptr<Linear> dense_, decoder_;
  std::shared_ptr<LayerNorm> norm_;
  nn::Activation activation_;  // RoBERTa: gelu, regardless of `hidden_act`
};

double classifier_dropout(const ModelConfig& config) {
  return config.number(config.is_null("classifier_dropout") ? "hidden_dropout_prob"
                                                            : "classifier_dropout");
}

// The base model under the name of its type. Subclasses add a head.
class WithBert : public Net {
 protected:
  WithBert(const ModelConfig& config, Task task, const Settings& settings, bool with_pooler)
      : Net(config, task, settings),
        bert_(child<BertModel>(*this, config.type(), config, here(), with_pooler)) {}

  const std::shared_ptr<BertModel> bert_;
};

class LanguageModel : public WithBert {
 public:
  LanguageModel(const ModelConfig& config, Task task, const Settings& settings)
      : WithBert(config, task, settings, false) {
    if (!here().ends()) return;
    const BertShape shape(config);
    torch::nn::Module& head = shape.roberta ? *this : *child<torch::nn::Module>(*this, "cls");
    head_ = child<LmHead>(head, shape.roberta ? "lm_head" : "predictions", config, shape,
                          bert_->embedding());
  }

  Output run(const Batch& batch) override {
    Output output;
    // With labels nothing is generated, and transformers keeps no cache.
    const bool keeps = keeps_cache() && !batch.labels.defined();
    const BertStates from = (*bert_)(batch, *this, keeps ? &output.cache : nullptr);
    if (!here().ends()) return handing_on(from.states);
    const auto inner = [head = head_](const Tensor& x) { return head->inner(x); };
    set_logits_and_loss(output, {inner, head_->projection()}, from.states, batch);
    return output;
  }

 private:
  std::shared_ptr<LmHead> head_;
};

// BERT classifies the pooled first token; RoBERTa has a layer of its own instead of the pooler.
class SequenceClassifier : public WithBert {
 public:
  SequenceClassifier(const ModelConfig& config, Task task, const Settings& settings)
      : WithBert(config, task, settings, config.type() == "bert") {
    if (!here().ends()) return;
    const std::int64_t width = config.count("hidden_size"), labels = config.labels();
    if (config.type() == "bert") {
      out_ = child<Linear>(*this, "classifier", width, labels);
    } else {
      const auto classifier = child<torch::nn::Module>(*this, "classifier");
      dense_ = child<Linear>(*classifier, "dense", width, width);
      out_ = child<Linear>(*classifier, "out_proj", width, labels);
    }
    dropout_ = classifier_dropout(config);
  }

  Output run(const Batch& batch) override {
    const BertStates from = (*bert_)(batch, *this, nullptr);
    if (!here().ends()) return handing_on(from.states);
    return classified(logits_of(from), batch);
  }

 private:
  [[nodiscard]] Tensor logits_of(const BertStates& from) const {
    Tensor x = dense_ ? from.states.select(1, 0) : from.pooled;
    x = at::dropout(x, dropout_, is_training());
    if (dense_) {
      x = (*dense_)(x);
      x = at::tanh(x);
      x = at::dropout(x, dropout_, is_training());
    }
    x = (*out_)(x);
    return x;
  }

  std::shared_ptr<Linear> dense_, out_;  // `dense_`: RoBERTa's only
  double dropout_ = 0;
};

std::shared_ptr<Model> build_bert(const ModelConfig& config, Task task, const Settings& settings) {
  if (task == Task::sequence_classification)
    return std::make_shared<SequenceClassifier>(config, task, settings);
  return std::make_shared<LanguageModel>(config, task, settings);
}

}  // namespace
}  // namespace bert

Build bert_family() {
  return bert::build_bert;
}

}  // namespace headroom::models::detail
