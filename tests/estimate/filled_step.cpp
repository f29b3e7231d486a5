#include "tests/estimate/filled_step.h"

#include <torch/torch.h>

#include "headroom/models/batch.h"
#include "headroom/models/initialise.h"

namespace headroom::estimate {

using torch::Tensor;

// Values from the CPU, so that the card is asked for nothing on the way.
TrainingStep filled_step(const model::ModelConfig& config, const model::Settings& settings,
                         c10::Device device) {
  TrainingStep step = training_step(config, settings, device);
  const torch::NoGradGuard no_grad;
  torch::manual_seed(1);  // where experts are chosen, what a row needs depends on the values
  models::Settings same = step.model->settings();
  const auto values = models::build(step.model->config(), same);
  models::initialise(*values);
  const auto from = values->module().named_parameters();
  for (auto& [name, parameter] : step.subject.parameters) {
    const Tensor* const value = from.find(name);  // an adapter's parameters have none
    Tensor(parameter).copy_(value == nullptr ? torch::randn(parameter.sizes()) * 0.02 : *value);
  }
  const bool has_mask =
      step.subject.inputs.front().dim() == 2 && settings.mask == model::Mask::ones;
  std::size_t index = 0;
  for (const Tensor& input : step.subject.inputs) {
    if (has_mask && index++ == 1) continue;  // of ones already
    const Tensor numbers = input.is_floating_point()
                               ? torch::randn(input.sizes())
                               : torch::randint(0, 5, input.sizes(), torch::kLong);
    Tensor(input).copy_(numbers.to(input.scalar_type()));
  }
  return step;
}

}  // namespace headroom::estimate
