// Adapters on a model in 4 bit: the memory of a step beside its prediction, and the gradients
// beside those of the same model with unpacked weights.
#include "headroom/nn/quantise.h"

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>

#include "headroom/dryrun/dry_run.h"
#include "headroom/dryrun/step_run.h"
#include "headroom/libtorch/on.h"
#include "headroom/libtorch/stored_weight.h"
#include "headroom/memory/device_memory.h"
#include "headroom/memory/memory_statistics.h"
#include "headroom/models/batch.h"
#include "headroom/models/initialise.h"
#include "headroom/nn/lora.h"
#include "headroom/optim/optimizer.h"
#include "tests/gpu_check/check.h"

namespace headroom::gpu_check {
namespace {

using at::Tensor;

// Llama 3.2 of 1B, and a small one for a simulated card, which computes on the CPU.
model::ModelConfig config_for(const Place& place) {
  const bool small = place.is_simulated();
  return model::ModelConfig({{"model_type", "llama"},
                             {"vocab_size", small ? 512 : 128256},
                             {"hidden_size", small ? 128 : 2048},
                             {"intermediate_size", small ? 512 : 8192},
                             {"num_hidden_layers", small ? 2 : 16},
                             {"num_attention_heads", small ? 4 : 32},
                             {"num_key_value_heads", small ? 2 : 8},
                             {"tie_word_embeddings", true}},
                            "llama-3.2-1b");
}

// Built without memory, so that the weights lie whole nowhere.
struct QuantisedTraining {
  QuantisedTraining(const model::ModelConfig& config, c10::Device device, at::ScalarType type)
      : model([&] {
          const nn::WithoutMemoryScope scope;
          return libtorch::on(device, type,
                              [&] { return models::build(config, {.fused_loss = true}); });
        }()) {
    nn::quantise(model->module());
    nn::give_memory(model->module());
    models::initialise(*model);
    lora = nn::add_lora(model->module(), {.rank = 16, .targets = {"all-linear"}});
    for (auto [name, parameter] : lora.parameters()) {
      parameter.detach().normal_(0, 0.02);
      trained.push_back(parameter);
    }
    model->train();
    optimizer = optim::make_adamw(trained, {.form = optim::OptimizerForm::fused});
    batch = models::random_batch(*model, {.rows = 2, .length = 256}, device);
  }

  void step() const {
    optimizer->zero_grad();
    model->run(batch).loss.backward();
    optimizer->step();
  }
  [[nodiscard]] std::vector<Tensor> gradients() const {
    optimizer->zero_grad();
    model->run(batch).loss.backward();
    std::vector<Tensor> all;
    for (const Tensor& parameter : trained) all.push_back(parameter.grad().clone());
    return all;
  }

  std::shared_ptr<models::Model> model;
  nn::Lora lora;
  std::vector<Tensor> trained;
  std::unique_ptr<optim::Optimizer> optimizer;
  models::Batch batch;
};

Bytes predicted_peak(const model::ModelConfig& config, const gpu::SimulatedCard& card) {
  const auto make = [&](c10::Device device) {
    const auto training = std::make_shared<QuantisedTraining>(config, device, at::kBFloat16);
    dryrun::Subject subject;
    subject.parameters = libtorch::parameters_of(training->model->module());
    subject.step = [training] { training->step(); };
    return subject;
  };
  return dryrun::dry_run(dryrun::without_limit(card), make).peak.allocated;
}

Bytes measured_peak(const model::ModelConfig& config, c10::Device device) {
  const QuantisedTraining training(config, device, at::kBFloat16);
  memory::reset_peak_memory_stats(device);
  for (int i = 0; i < 2; ++i) training.step();
  memory::memory_of(device).synchronize(device.index());
  return memory::get_gpu_memory_stats(device).max_allocated;
}

// The largest distance of a gradient from that over unpacked weights, as a share of its norm.
double worst_gradient(const model::ModelConfig& config, c10::Device device) {
  const QuantisedTraining training(config, device, at::kFloat);
  const std::vector<Tensor> quantised = training.gradients();
  for (Tensor& parameter : training.model->module().parameters())
    if (const auto store = libtorch::store_of(parameter)) {
      const Tensor whole = store->whole(parameter.scalar_type());
      parameter.set_data(whole);
    }
  const std::vector<Tensor> plain = training.gradients();
  double worst = 0;
  for (std::size_t i = 0; i < plain.size(); ++i)
    worst = std::max(worst, ((quantised[i] - plain[i]).norm() / plain[i].norm()).item<double>());
  return worst;
}

}  // namespace

Outcome check_quantised(Place& place) {
  const model::ModelConfig config = config_for(place);
  const Bytes predicted = predicted_peak(config, place.described());
  const c10::Device device = place.open();
  const Bytes measured = measured_peak(config, device);
  const double error =
      static_cast<double>(predicted.count) / static_cast<double>(measured.count) - 1;
  const double worst = worst_gradient(config, device);
  std::vector<std::string> complaints;
  if (std::abs(error) > 0.01)
    complaints.push_back("predicted " + to_string(predicted) + ", measured " + to_string(measured));
  if (!(worst <= 1e-4))
    complaints.push_back("a gradient is off by " + std::to_string(worst) + " of its norm");
  return judged(
      complaints,
      "a step over NF4 takes " + to_string(measured) + ", predicted " + to_string(predicted) +
          "; gradients as over unpacked weights",
      {{"measured", measured.count}, {"predicted", predicted.count}, {"worst_gradient", worst}});
}

}  // namespace headroom::gpu_check
