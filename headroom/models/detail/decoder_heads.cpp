#include "headroom/models/detail/decoder_heads.h"

#include <ATen/ATen.h>

#include "headroom/models/detail/last_token.h"
#include "headroom/models/detail/loss.h"

namespace headroom::models::detail {
namespace {

class DecoderNet : public Net {
 protected:
  DecoderNet(const model::ModelConfig& config, Task task, const Settings& settings,
             const Headless& headless)
      : Net(config, task, settings),
        options_(headless.options),
        decoder_(register_module(options_.decoder, headless.decoder)) {}

  // Routers' logits go to `output.more`.
  Tensor states_of(const Batch& batch, Output& output) const {
    LayerInputs with;
    with.attention = settings().attention;
    with.transformers = settings().transformers;
    if (keeps_cache() && (options_.cache_when_training || !is_training()))
      with.cache = &output.cache;
    if (options_.collects_routes) {
      with.routes = &output.more;
      if (!batch.given.empty()) output.more.assign(batch.given.begin() + 1, batch.given.end());
    }
    return (*decoder_)(batch, *this, with);
  }

  // Routers' logits go with the states, because the loss needs those of all layers.
  static Output to_next_part(Tensor states, Output output) {
    output.handed_on.push_back(std::move(states));
    for (Tensor& route : output.more) output.handed_on.push_back(std::move(route));
    output.more.clear();
    return output;
  }

  const HeadOptions options_;
  const std::shared_ptr<Decoder> decoder_;
};

class DecoderLm : public DecoderNet {
 public:
  DecoderLm(const model::ModelConfig& config, const Settings& settings, const Headless& headless)
      : DecoderNet(config, Task::causal_lm, settings, headless),
        head_(here().ends() ? made_head(config.flag("tie_word_embeddings")) : nullptr) {}

  Output run(const Batch& batch) override {
    Output output;
    const Tensor states = states_of(batch, output);
    if (!here().ends()) return to_next_part(states, std::move(output));
    if (fuses_loss(batch)) {
      output.loss = fused_causal_lm_loss(capped_head(), states, batch.labels);
    } else if (chunks_loss(batch)) {
      output.loss = chunked_causal_lm_loss(
          [self = shared_from_this(), this](const Tensor& x) { return logits_of(x); }, states,
          batch.labels, settings().loss_chunk);
    } else {
      output.logits = logits_of(states);
      if (!batch.labels.defined()) return output;
      if (options_.casts_twice) output.logits = output.logits.to(at::kFloat);
      output.loss = causal_lm_loss(output.logits, batch.labels);
      if (options_.casts_twice) output.logits = output.logits.to(states.scalar_type());
    }
    if (options_.casts_twice) output.loss = output.loss.to(states.scalar_type());
    if (options_.routing_loss) output.loss.add_(options_.routing_loss(output.more, batch));
    return output;
  }

 private:
  std::shared_ptr<nn::Linear> made_head(bool tied) {
    const Tensor& embedding = decoder_->embedding();
    const std::int64_t vocabulary = embedding.size(0);
    if (!tied)
      return child<nn::Linear>(*this, options_.head, embedding.size(1), vocabulary,
                               options_.with_bias);
    auto head = child<nn::Linear>(*this, options_.head, embedding);
    if (options_.with_bias) head->bias = head->register_parameter("bias", at::empty({vocabulary}));
    return head;
  }

  [[nodiscard]] Tensor logits_of(const Tensor& states) const { return capped((*head_)(states)); }

  [[nodiscard]] Tensor capped(Tensor logits) const {
    if (options_.logit_cap == 0) return logits;
    logits = logits / options_.logit_cap;
    logits = at::tanh(logits);
    return logits * options_.logit_cap;
  }

  [[nodiscard]] nn::FusedHead capped_head() const {
    nn::FusedHead head = fused_head(*head_);
    if (options_.logit_cap != 0)
      head.after = [this, after = head_->after](const Tensor& x, Tensor product) {
        return capped(after ? after(x, std::move(product)) : std::move(product));
      };
    return head;
  }

  const std::shared_ptr<nn::Linear> head_;
};

class DecoderClassifier : public DecoderNet {
 public:
  DecoderClassifier(const model::ModelConfig& config, const Settings& settings,
                    const Headless& headless)
      : DecoderNet(config, Task::sequence_classification, settings, headless),
        score_(here().ends() ? child<nn::Linear>(*this, "score", decoder_->embedding().size(1),
                                                 config.labels(), false)
                             : nullptr) {}

  Output run(const Batch& batch) override {
    Output output;
    const Tensor states = states_of(batch, output);
    if (!here().ends()) return to_next_part(states, std::move(output));
    const Tensor everywhere = (*score_)(states);
    return classified(at_last_token(everywhere, batch.tokens, config()), batch, std::move(output));
  }

 private:
  const std::shared_ptr<nn::Linear> score_;
};

}  // namespace

Build decoder_family(std::function<Headless(const model::ModelConfig&, const Settings&)> headless) {
  return [headless = std::move(headless)](const model::ModelConfig& config, Task task,
                                          const Settings& settings) -> std::shared_ptr<Model> {
    if (task == Task::causal_lm)
      return std::make_shared<DecoderLm>(config, settings, headless(config, settings));
    return std::make_shared<DecoderClassifier>(config, settings, headless(config, settings));
  };
}

}  // namespace headroom::models::detail
