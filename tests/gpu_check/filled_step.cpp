#include "tests/gpu_check/filled_step.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace headroom::gpu_check {
namespace {

// In place, so that the card is asked for nothing on the way.
void fill(const estimate::TrainingStep& step, const model::Settings& settings) {
  const at::NoGradGuard no_grad;
  const auto& subject = step.subject;
  for (const auto& [name, parameter] : subject.parameters) at::Tensor(parameter).normal_(0, 0.02);
  const model::ModelConfig& config = step.model->config();
  const bool has_tokens = step.model->task() != model::Task::image_classification;
  const std::int64_t below = has_tokens ? config.at_least_1("vocab_size") : config.labels();
  const bool has_mask = has_tokens && settings.mask == model::Mask::ones;
  for (std::size_t i = 0; i < subject.inputs.size(); ++i) {
    at::Tensor input = subject.inputs[i];
    if (has_mask && i == 1) continue;  // the mask is after the tokens, and of ones already
    if (input.is_floating_point())
      input.normal_();
    else
      input.random_(0, below);
  }
}

}  // namespace

estimate::TrainingStep filled_step(const model::ModelConfig& config,
                                   const model::Settings& settings, c10::Device device) {
  estimate::TrainingStep step = estimate::training_step(config, settings, device);
  fill(step, settings);
  return step;
}

}  // namespace headroom::gpu_check
