#include "headroom/recipe/recipe.h"

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/base/text.h"
#include "headroom/config/training_keys.h"
#include "headroom/libtorch/on.h"
#include "headroom/memory/memory_statistics.h"
#include "headroom/models/initialise.h"
#include "headroom/nn/quantise.h"
#include "headroom/plan/technique.h"
#include "headroom/recipe/model.h"
#include "headroom/train/model_objective.h"
#include "headroom/weights/adapter_files.h"
#include "headroom/weights/safetensors.h"

namespace headroom::recipe {
namespace {

optim::Schedule schedule_of(const config::Resolved& config, std::int64_t steps) {
  const std::int64_t warm = std::min(config.whole("warmup_steps"), steps - 1);
  const std::int64_t rest = std::max<std::int64_t>(1, steps - warm);
  const std::string word = config.text("scheduler");
  const optim::Schedule then = word == "linear"      ? optim::linear(rest)
                               : word == "cosine"    ? optim::cosine(rest)
                               : word == "one-cycle" ? optim::one_cycle(rest)
                                                     : optim::constant();
  return warm > 0 ? optim::warmed_up(warm, then) : then;
}

// ---- Model ----

// The techniques that a step can switch by itself: it starts with these. The model is built without
// them. Those that last are a property of the model.
std::set<std::string> rungs_of(const config::Resolved& config) {
  std::set<std::string> names;
  for (const plan::Rung& rung : plan::rungs()) {
    if (rung.lasts) continue;
    const std::size_t equals = rung.key.find('=');
    if (config.text(rung.key.substr(0, equals)) == rung.key.substr(equals + 1))
      names.insert(rung.name);
  }
  return names;
}

model::Settings without_rungs(const config::Training& training) {
  model::Settings settings = training.settings;
  for (const std::string& name : rungs_of(training.config))
    plan::rung_named(name).put(settings, false);
  return settings;
}

nn::LoraOptions adapters_of(const config::Resolved& config) {
  return {.rank = config.whole("model.lora_r"),
          .alpha = config.number("model.lora_alpha"),
          .dropout = config.number("model.lora_dropout"),
          .targets = config.words("model.lora_targets")};
}

// An adapter in files goes on where the model is LoRA, and becomes part of the weights elsewhere.
std::optional<nn::Lora> choose_what_is_trained(models::Model& model,
                                               const config::Training& training,
                                               const model::Settings& settings) {
  torch::nn::Module& module = model.module();
  const bool is_lora = training.config.text("model") == "lora";
  if (const auto adapter = config::adapter_of(training.config)) {
    nn::Lora lora = weights::load_adapter(module, *adapter);
    if (is_lora) return lora;
    lora.merge();
    for (auto& parameter : module.named_parameters())
      parameter->set_requires_grad(parameter.key().find("lora_") == std::string::npos);
  }
  TrainedParts parts{.input_gradients = false};
  if (is_lora) parts.lora = adapters_of(training.config);
  return recipe::choose_what_is_trained(model, settings, parts);
}

// Parameters that are not trained must have been loaded.
void check_frozen(torch::nn::Module& module, const std::vector<std::string>& lacking,
                  const std::string& weights) {
  std::vector<std::string> frozen;
  for (const auto& parameter : module.named_parameters())
    if (!parameter->requires_grad() &&
        std::find(lacking.begin(), lacking.end(), parameter.key()) != lacking.end())
      frozen.push_back(parameter.key());
  if (!frozen.empty())
    throw InputError("weights", "expected all that is not trained in " + weights + ", but " +
                                    counted(static_cast<long long>(frozen.size()), "tensor") +
                                    " are not there in the model's shape, " + frozen.front() +
                                    " for example; try the weights of this model, or model=full");
}

std::string words_of(const std::string& name, torch::nn::Module& module) {
  long long all = 0, active = 0;
  for (const at::Tensor& parameter : module.parameters()) {
    all += parameter.numel();
    if (parameter.requires_grad()) active += parameter.numel();
  }
  return name + ", " + rounded(all) + " parameters" +
         (active == all ? "" : ", " + rounded(active) + " of them trained");
}

at::ScalarType type_of(const model::Settings& settings) {
  return settings.dtype == model::Dtype::bfloat16 ? at::kBFloat16 : at::kFloat;
}

void seed_all(c10::Device device, std::uint64_t seed) {
  at::manual_seed(seed);
  if (device.is_cpu()) return;
  at::Generator generator = at::globalContext().defaultGenerator(device);
  generator.set_current_seed(seed);
}

}  // namespace

bool can_quantise(const config::Training& training, std::int64_t outputs) {
  if (!training.settings.freeze_backbone && training.settings.lora_rank == 0) return false;
  const auto model = libtorch::on(at::kMeta, type_of(training.settings), [&] {
    return build_model(training.model_for(outputs), without_rungs(training));
  });
  return !nn::quantised_layers(model->module()).empty();
}

Model model_of(const config::Training& training, c10::Device device, const ModelOptions& options) {
  const config::Resolved& config = training.config;
  const auto weights = options.reads_weights ? config::weights_of(config) : std::nullopt;
  const model::ModelConfig network = training.model_for(options.outputs);
  model::Settings settings = without_rungs(training);
  if (!options.quantised.empty()) plan::rung_named(options.quantised).put(settings, true);
  const auto memory = [&](const char* when) {
    if (options.say) options.say(memory::log_gpu_memory_stats(when, device));
  };
  seed_all(device, static_cast<std::uint64_t>(config.whole("seed")));
  Model made{.quantised = options.quantised};
  made.model =
      libtorch::on(device, type_of(settings), [&] { return build_model(network, settings); });
  std::vector<std::string> lacking;
  if (weights) {
    const weights::Loaded loaded =
        weights::load(*made.model, *weights, {.skip_other_shapes = true});
    if (options.say) options.say(weights::to_string(loaded));
    lacking = loaded.missing;
    for (const weights::OtherShape& other : loaded.other_shapes) lacking.push_back(other.name);
  } else {
    models::initialise(*made.model);
  }
  memory("model on the device");
  made.lora = choose_what_is_trained(*made.model, training, settings);
  if (weights) check_frozen(made.model->module(), lacking, *weights);
  made.model->train();
  made.optimizer =
      optim::make_optimizer(settings.optimizer, settings.form, trained(made.model->module()),
                            {.learning = config.number("lr"),
                             .weight_decay = config.number("weight_decay"),
                             .rounding = settings.rounding,
                             .seed = static_cast<std::uint64_t>(config.whole("seed"))});
  made.words = words_of(training.model.name, made.model->module());
  memory("optimizer made");
  return made;
}

std::int64_t steps_of(const config::Resolved& config, const data::Loader& loader) {
  const std::int64_t all = config.optional_whole("epochs").value_or(1) * loader.batches_per_epoch();
  const std::int64_t steps = config.optional_whole("steps").value_or(all);
  return config.optional_whole("epochs") ? std::min(steps, all) : steps;
}

train::StepOptions step_options_of(const config::Resolved& config, std::int64_t steps) {
  train::StepOptions options;
  options.max_grad_norm = config.number("max_grad_norm");
  if (config.yes("bf16")) options.autocast = at::kBFloat16;
  if (config.yes("fp16")) {
    options.autocast = at::kHalf;
    options.scaling = optim::LossScalerOptions{};
  }
  options.schedule = schedule_of(config, steps);
  options.ladder.min_micro_batch = config.whole("min_batch_size");
  if (config.is_given("margin")) {
    const ShareOrBytes margin = config.share_or_bytes("margin");
    options.ladder.room = {.least = margin.bytes, .share = margin.share.value_or(0)};
  }
  options.ladder.max_retries = static_cast<int>(config.whole("max_retries"));
  options.plan.micro_batch = config.whole("batch_size");
  options.plan.techniques = rungs_of(config);
  options.prices = config.yes("auto_batch_size");
  return options;
}

train::Objective objective_of(const config::Training& training,
                              const std::shared_ptr<models::Model>& model) {
  return train::objective_of(model, {.quantises = training.config.text("quantize") == "auto"});
}

Recipe make(const config::Training& training, c10::Device device) {
  Recipe recipe{.training = training, .data = data_of(training, device.is_cuda())};
  Model made = model_of(training, device, {.outputs = recipe.data.outputs});
  recipe.model = std::move(made.model);
  recipe.lora = std::move(made.lora);
  recipe.optimizer = std::move(made.optimizer);
  recipe.objective = objective_of(training, recipe.model);
  recipe.batches = batches_of(recipe.data.train, training);
  recipe.steps = steps_of(training.config, *recipe.data.train);
  recipe.step = step_options_of(training.config, recipe.steps);
  return recipe;
}

Recipe make(const std::vector<std::string>& settings, c10::Device device) {
  config::Resolved config = config::resolve(config::training_keys(), {.overrides = settings});
  config::take_model_of_adapter(config);
  config::choose_dataset(config);
  return make(config::Training(std::move(config)), device);
}

}  // namespace headroom::recipe
