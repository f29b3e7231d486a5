#include "headroom/train/model_objective.h"

#include <ATen/ATen.h>

#include <utility>

#include "headroom/base/error.h"
#include "headroom/kernels/packed.h"
#include "headroom/model/tasks.h"
#include "headroom/models/batch.h"
#include "headroom/nn/quantise.h"

namespace headroom::train {

Tensors tensors_of(const models::Batch& batch) {
  return {batch.tokens, batch.mask, batch.pixels, batch.labels, batch.targets};
}

models::Batch batch_of(const Tensors& tensors) {
  if (tensors.size() != 5)
    throw UsageError(expectation("batch_of", "tokens, mask, pixels, labels and targets",
                                 std::to_string(tensors.size()) + " tensors", "tensors_of(batch)"));
  models::Batch batch;
  batch.tokens = tensors[0];
  batch.mask = tensors[1];
  batch.pixels = tensors[2];
  batch.labels = tensors[3];
  batch.targets = tensors[4];
  return batch;
}

namespace {

// Each by its rung's name (plan/techniques/quantize.cpp), the one with more bits first.
constexpr std::pair<const char*, kernels::Format> kFormats[] = {
    {"quantize_8bit", kernels::Format::int8}, {"quantize_4bit", kernels::Format::nf4}};

// What is in this format already, or in fewer bits, stays.
void quantise(models::Model& model, const Plan& plan) {
  for (const auto& [name, format] : kFormats)
    if (plan.has(name)) nn::quantise(model.module(), {.format = format});
}

Score score_of(models::Model& model, const models::Batch& batch) {
  const models::Output output = model.run(batch);
  Score score{.loss = output.loss, .right = {}, .logits = {}};
  const bool has_classes = output.logits.defined() && output.logits.dim() == 2 &&
                           batch.labels.dim() == 1 && batch.labels.scalar_type() == at::kLong;
  if (has_classes) {
    score.right = output.logits.argmax(-1).eq(batch.labels).sum();
    score.logits = output.logits;
  }
  return score;
}

models::Batch batch_with(const Tensors& rows, const Tensors& given) {
  models::Batch batch = batch_of(rows);
  batch.given = given;
  return batch;
}

void set_part(Objective& objective, const std::shared_ptr<models::Model>& model) {
  objective.part = [model](const Tensors& rows, const Tensors& given) {
    models::Output output = model->run(batch_with(rows, given));
    return output.handed_on.empty() ? Tensors{output.loss} : std::move(output.handed_on);
  };
  objective.part_score = [model](const Tensors& rows, const Tensors& given) {
    return score_of(*model, batch_with(rows, given));
  };
  const bool is_first = model->settings().part->first == 0;
  objective.uses = {true, true, is_first, true, true};  // pixels are large
}

}  // namespace

Objective objective_of(const std::shared_ptr<models::Model>& model,
                       const ModelObjectiveOptions& options) {
  const models::Settings own = model->settings();
  Objective objective;
  if (own.part) {
    set_part(objective, model);
  } else {
    objective.loss = [model](const Tensors& rows) { return model->run(batch_of(rows)).loss; };
    objective.score = [model](const Tensors& rows) { return score_of(*model, batch_of(rows)); };
  }
  objective.terms = [model](const Tensors& rows) {
    return models::counted_labels(*model, batch_of(rows)).item<std::int64_t>();
  };
  // A stage that is checkpointed from the start has it in every plan.
  const bool is_all = own.checkpointing.every == 1 && own.checkpointing.layers.empty();
  if (own.checkpointing.how == nn::Recompute::none || (own.part && is_all))
    objective.techniques.insert("checkpointing");
  const bool can_fuse =
      model::is_over_tokens(model->task()) && own.loss_chunk == 0 && !own.fused_loss;
  if (can_fuse) objective.techniques.insert("fused_loss");
  if (options.quantises && !nn::quantised_layers(model->module()).empty())
    for (const auto& [name, format] : kFormats) objective.techniques.insert(name);
  objective.follow = [model, own, can_fuse](const Plan& plan) {
    quantise(*model, plan);
    models::Checkpointing checkpointing = own.checkpointing;
    if (plan.has("checkpointing") && checkpointing.how == nn::Recompute::none)
      checkpointing.how = nn::Recompute::nonreentrant;
    model->set_checkpointing(checkpointing);
    if (can_fuse) model->set_fused_loss(plan.has("fused_loss"));
  };
  return objective;
}

}  // namespace headroom::train
