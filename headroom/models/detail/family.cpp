#include "headroom/models/detail/family.h"

#include <ATen/ATen.h>

#include "headroom/base/error.h"
#include "headroom/libtorch/on.h"
#include "headroom/model/shapes.h"
#include "headroom/model/tasks.h"
#include "headroom/models/detail/loss.h"

namespace headroom::models::detail {

Here::Here(const model::ModelConfig& config, const Settings& settings)
    : begins_(true),
      ends_(true),
      ties_(settings.task && model::is_over_tokens(*settings.task) &&
            config.flag("tie_word_embeddings")),
      first_(0),
      last_(model::layer_count(config)) {
  if (!settings.part) return;
  begins_ = settings.part->first == 0;
  ends_ = settings.part->first + settings.part->count == last_;
  first_ = settings.part->first;
  last_ = first_ + settings.part->count;
}

std::shared_ptr<nn::Embedding> Here::words(torch::nn::Module& of, const char* name,
                                           std::int64_t rows, std::int64_t width,
                                           std::int64_t padding, bool also) const {
  if (begins_ || (ends_ && ties_) || also)
    return child<nn::Embedding>(of, name, rows, width, padding);
  return libtorch::on(at::kMeta,
                      [&] { return std::make_shared<nn::Embedding>(rows, width, padding); });
}

Net::Net(model::ModelConfig config, Task task, const Settings& settings)
    : Model(std::move(config), task, settings), here_(Model::config(), settings) {}

nn::Recompute Net::recomputes(std::size_t index) const {
  const Checkpointing& checkpointing = settings().checkpointing;
  const int layer = static_cast<int>(index);
  const bool chosen = checkpointing.layers.empty() ? layer % checkpointing.every == 0
                                                   : checkpointing.layers.contains(layer);
  if (!is_training() || !chosen) return nn::Recompute::none;
  const bool leaves_out =
      checkpointing.but_attention && checkpointing.how == nn::Recompute::nonreentrant;
  return leaves_out ? nn::Recompute::selective : checkpointing.how;
}

Tensor Net::run_layer(std::size_t index, const Function& layer, const Tensor& states) const {
  return nn::checkpointed(recomputes(index), layer, states);
}

nn::Tensors Net::run_layer(std::size_t index,
                           const std::function<nn::Tensors(const nn::Tensors&)>& layer,
                           const nn::Tensors& inputs) const {
  return nn::checkpointed(recomputes(index), layer, inputs);
}

bool Net::keeps_cache() const {
  const bool recomputes = settings().checkpointing.how != nn::Recompute::none && is_training();
  return settings().use_cache && !recomputes;
}

Tensor TokenHead::operator()(const Tensor& states) const {
  if (!inner) return (*projection)(states);
  const Tensor x = inner(states);
  return (*projection)(x);
}

nn::FusedHead fused_head(const nn::Linear& projection) {
  nn::FusedHead head{
      .weight = projection.weight, .bias = projection.bias, .after = projection.after};
  for (const auto& adapter : projection.children())
    for (const Tensor& parameter : adapter->parameters()) head.parameters.push_back(parameter);
  return head;
}

void Net::set_logits_and_loss(Output& output, const TokenHead& head, const Tensor& states,
                              const Batch& batch) const {
  const bool causal = task() == Task::causal_lm;
  if (fuses_loss(batch)) {
    const auto fused = causal ? fused_causal_lm_loss : fused_token_loss;
    output.loss =
        fused(fused_head(*head.projection), head.inner ? head.inner(states) : states, batch.labels);
    return;
  }
  if (chunks_loss(batch)) {
    const auto chunked = causal ? chunked_causal_lm_loss : chunked_token_loss;
    output.loss = chunked(head, states, batch.labels, settings().loss_chunk);
    return;
  }
  output.logits = head(states);
  if (batch.labels.defined())
    output.loss = (causal ? causal_lm_loss : token_loss)(output.logits, batch.labels);
}

Output Net::classified(Tensor logits, const Batch& batch, Output output) const {
  output.logits = std::move(logits);
  if (batch.labels.defined())
    output.loss = classification_loss(output.logits, batch.labels, config());
  return output;
}

Tensor in_chunks(const Function& part, std::int64_t tokens, const Tensor& states) {
  if (tokens == 0) return part(states);
  const std::int64_t length = states.size(1);
  if (length % tokens != 0)
    throw UsageError(expectation("chunk_size_feed_forward",
                                 "a length that is a multiple of " + std::to_string(tokens),
                                 std::to_string(length)));
  std::vector<Tensor> done;
  for (const Tensor& chunk : states.chunk(length / tokens, 1)) done.push_back(part(chunk));
  return at::cat(done, 1);
}

void keep(Cache* cache, Tensor& keys, Tensor& values) {
  if (cache == nullptr) return;
  const Tensor none = at::empty({0}, keys.options());
  keys = at::cat({none, keys}, -2);
  values = at::cat({none, values}, -2);
  cache->emplace_back(keys, values);
}

}  // namespace headroom::models::detail
