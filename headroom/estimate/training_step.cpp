#include "headroom/estimate/training_step.h"

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <optional>

#include "headroom/base/error.h"
#include "headroom/base/text.h"
#include "headroom/libtorch/autocast.h"
#include "headroom/libtorch/on.h"
#include "headroom/libtorch/stored_weight.h"
#include "headroom/model/can_run.h"
#include "headroom/model/positions.h"
#include "headroom/model/tasks.h"
#include "headroom/models/batch.h"
#include "headroom/nn/layers.h"
#include "headroom/nn/offload.h"
#include "headroom/optim/clip.h"
#include "headroom/optim/loss_scaler.h"
#include "headroom/optim/optimizer.h"
#include "headroom/recipe/model.h"
#include "headroom/sim/simulate.h"

namespace headroom::estimate {
namespace {

using at::Tensor;
using model::Settings;

at::ScalarType type_of(model::Dtype dtype) {
  switch (dtype) {
    case model::Dtype::float32:
      return at::kFloat;
    case model::Dtype::bfloat16:
      return at::kBFloat16;
    case model::Dtype::float16:
      return at::kHalf;
  }
  throw InternalError("training_step", "a dtype without a name");
}

models::BatchSizes batch_sizes(const model::ModelConfig& config, const Settings& settings) {
  return {.rows = settings.batch,
          .length = sequence_length(config, settings),
          .target_length = settings.target_seq,
          .image = settings.image,
          .mask = settings.mask,
          .pixels = type_of(settings.dtype),
          .labels = settings.mode == model::Mode::train};
}

bool has_data(c10::Device device) {
  return device.is_privateuseone() ? sim::card_of(device)->mode() == sim::Mode::compute
                                   : !device.is_meta();
}

// The variables of a training loop, and its steps.
class Loop {
 public:
  Loop(std::shared_ptr<models::Model> model, models::Batch batch, const Settings& settings,
       c10::Device device)
      : model_(std::move(model)),
        batch_(std::move(batch)),
        settings_(settings),
        device_(device),
        optimizer_(optim::make_optimizer(settings.optimizer, settings.form,
                                         recipe::trained(model_->module()),
                                         {.rounding = settings.rounding})) {
    if (settings.autocast == model::Autocast::fp16) scaler_.emplace();
    if (settings.offload.activations)
      offload_.emplace(all(*model_), nn::OffloadOptions{.copies = has_data(device)});
  }

  void train() {
    for (std::int64_t micro = 0; micro < settings_.accumulation; ++micro) backward();
    if (settings_.clip) {
      if (scaler_) scaler_->unscale(*optimizer_);
      optim::clip_gradients(optimizer_->parameters(), *settings_.clip);
    }
    step();
    optimizer_->zero_grad(!settings_.zero_gradients);
  }

  void infer() {
    const at::NoGradGuard no_grad;
    outputs_ = forward();
    outputs_ = {};
  }

 private:
  static std::vector<Tensor> all(models::Model& model) {
    std::vector<Tensor> tensors;
    for (const auto& [name, tensor] : libtorch::tensors_of(model.module()))
      tensors.push_back(tensor);
    return tensors;
  }

  models::Output forward() {
    if (!offload_) return run();
    const auto elsewhere = offload_->scope();
    return run();
  }

  models::Output run() {
    std::optional<libtorch::AutocastScope> mixed;
    if (settings_.autocast != model::Autocast::none)
      mixed.emplace(device_.type(),
                    settings_.autocast == model::Autocast::bf16 ? at::kBFloat16 : at::kHalf);
    return model_->run(batch_);
  }

  void backward() {
    models::Output outputs = forward();
    loss_ = outputs.loss;
    if (settings_.hold_outputs) outputs_ = outputs;
    outputs = {};
    // Each micro-batch has the same number of labels, so its share of the whole batch's mean is
    // 1/accumulation (optim/accumulation.h).
    if (settings_.accumulation > 1) loss_ = loss_ / static_cast<double>(settings_.accumulation);
    if (scaler_)
      scaler_->scale(loss_).backward();
    else
      loss_.backward();
  }

  void step() {
    if (!scaler_) return optimizer_->step();
    scaler_->step(*optimizer_);
    scaler_->update();
  }

  const std::shared_ptr<models::Model> model_;
  const models::Batch batch_;
  const Settings settings_;
  const c10::Device device_;
  const std::unique_ptr<optim::Optimizer> optimizer_;
  std::optional<optim::LossScaler> scaler_;
  std::optional<nn::Offload> offload_;
  Tensor loss_;  // lives until the next loss replaces it, as in a training loop
  models::Output outputs_;
};

void add_tensors(dryrun::Subject& subject, models::Model& model, const models::Batch& batch) {
  subject.parameters = libtorch::parameters_of(model.module());
  for (const auto& child : model.module().named_modules())
    if (const auto* head = dynamic_cast<const nn::Linear*>(child.value().get());
        head != nullptr && head->is_tied())
      subject.parameters.emplace_back(child.key() + ".weight", head->weight);
  for (const auto& buffer : model.module().named_buffers())
    subject.buffers.emplace_back(buffer.key(), buffer.value());
  for (const Tensor& input : {batch.tokens, batch.mask, batch.pixels, batch.labels, batch.targets})
    if (input.defined()) subject.inputs.push_back(input);
}

void check_can_run(const Settings& settings) {
  const std::vector<std::string> names = cannot_run(settings);
  if (!names.empty())
    throw UsageError(expectation("training_step", "settings that can run", join(names, ", "),
                                 "--quick, which answers by formula"));
}

}  // namespace

TrainingStep training_step(const model::ModelConfig& config, const Settings& settings,
                           c10::Device device) {
  check_can_run(settings);
  check_quantize(settings);
  check_rounding(settings);
  // The forecast refuses in this order, too: the task, the sizes, the network.
  (void)task_for(config, settings.task);
  const models::BatchSizes sizes = batch_sizes(config, settings);
  check_image(config, settings);
  const std::shared_ptr<models::Model> model = libtorch::on(
      device, type_of(settings.dtype), [&] { return recipe::build_model(config, settings); });
  recipe::choose_what_is_trained(*model, settings);
  const bool trains = settings.mode == model::Mode::train;
  model->train(trains);
  const models::Batch batch = models::empty_batch(*model, sizes, device);
  const auto loop = std::make_shared<Loop>(model, batch, settings, device);
  TrainingStep step{.model = model, .subject = {}};
  add_tensors(step.subject, *model, batch);
  step.subject.step = [loop, trains] { trains ? loop->train() : loop->infer(); };
  return step;
}

}  // namespace headroom::estimate
