#include "headroom/cli/engine/train/training_job.h"

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "headroom/base/error.h"
#include "headroom/base/text.h"
#include "headroom/cli/core/training_request.h"
#include "headroom/config/training_keys.h"
#include "headroom/libtorch/on.h"
#include "headroom/memory/memory_statistics.h"
#include "headroom/models/initialise.h"
#include "headroom/nn/freeze.h"
#include "headroom/weights/adapter_files.h"
#include "headroom/weights/safetensors.h"
#include "headroom/weights/tensor_files.h"

namespace headroom::cli {
namespace {

namespace fs = std::filesystem;

// ---- Optimizer ----

std::vector<at::Tensor> trained(torch::nn::Module& module) {
  std::vector<at::Tensor> all;
  for (const at::Tensor& parameter : module.parameters())
    if (parameter.requires_grad()) all.push_back(parameter);
  return all;
}

std::unique_ptr<optim::Optimizer> optimizer_of(const config::Resolved& config,
                                               std::vector<at::Tensor> parameters) {
  const double rate = config.number("lr"), decay = config.number("weight_decay");
  constexpr auto kFused = optim::OptimizerForm::fused;
  switch (model::choice<model::Optimizer>(config.text("optimizer"))) {
    case model::Optimizer::adamw:
      return optim::make_adamw(std::move(parameters),
                               {.learning_rate = rate, .weight_decay = decay, .form = kFused});
    case model::Optimizer::adam:
      return optim::make_adam(std::move(parameters),
                              {.learning_rate = rate, .weight_decay = decay, .form = kFused});
    case model::Optimizer::sgd:
      return optim::make_sgd(std::move(parameters),
                             {.learning_rate = rate, .weight_decay = decay, .form = kFused});
    case model::Optimizer::sgd_momentum:
      return optim::make_sgd(
          std::move(parameters),
          {.learning_rate = rate, .momentum = 0.9, .weight_decay = decay, .form = kFused});
    case model::Optimizer::adafactor:
      return optim::make_adafactor(std::move(parameters),
                                   {.learning_rate = rate, .weight_decay = decay});
    case model::Optimizer::adafactor_hf:
      return optim::make_adafactor_hf(std::move(parameters), {.learning_rate = rate,
                                                              .weight_decay = decay,
                                                              .scale_parameter = false,
                                                              .relative_step = false});
    default:
      throw UsageError(
          expectation("optimizer", "one that Headroom can run", config.text("optimizer"), "adamw"));
  }
}

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

models::Settings build_settings(const config::Resolved& config, const model::ModelConfig& model) {
  const model::Settings settings = settings_of(config, model);
  models::Settings build{.task = settings.task, .attention = settings.attention};
  if (settings.checkpoint_every > 1)
    build.checkpointing = {.how = nn::Recompute::nonreentrant,
                           .every = static_cast<int>(settings.checkpoint_every)};
  if (settings.loss == model::LossForm::chunked) build.loss_chunk = settings.loss_chunk;
  return build;
}

bool is_classifier(const models::Model& model) {
  return model.task() == model::Task::image_classification ||
         model.task() == model::Task::sequence_classification;
}

std::optional<nn::Lora> choose_what_is_trained(models::Model& model, const config::Resolved& config,
                                               const std::optional<std::string>& adapter) {
  torch::nn::Module& module = model.module();
  const std::string kind = config.text("model");
  if (adapter) {
    nn::Lora lora = weights::load_adapter(module, *adapter);
    if (kind == "lora") return lora;
    lora.merge();
    for (auto& parameter : module.named_parameters())
      parameter->set_requires_grad(parameter.key().find("lora_") == std::string::npos);
  }
  if (kind == "linear_probe") nn::freeze_all_but_heads(module);
  if (kind != "lora") return {};
  nn::Lora lora = nn::add_lora(module, {.rank = config.whole("model.lora_r"),
                                        .alpha = config.number("model.lora_alpha"),
                                        .dropout = config.number("model.lora_dropout"),
                                        .targets = config.words("model.lora_targets")});
  if (is_classifier(model)) nn::train_heads(module);  // a head that no file has
  return lora;
}

// What is not trained needs its weights.
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

std::string count_text(long long count) {
  char text[32];
  if (count >= 1'000'000'000)
    std::snprintf(text, sizeof text, "%.2f B", static_cast<double>(count) / 1e9);
  else if (count >= 1'000'000)
    std::snprintf(text, sizeof text, "%.1f M", static_cast<double>(count) / 1e6);
  else
    std::snprintf(text, sizeof text, "%lld", count);
  return text;
}

std::string words_of(const std::string& name, torch::nn::Module& module) {
  long long all = 0, active = 0;
  for (const at::Tensor& parameter : module.parameters()) {
    all += parameter.numel();
    if (parameter.requires_grad()) active += parameter.numel();
  }
  return name + ", " + count_text(all) + " parameters" +
         (active == all ? "" : ", " + count_text(active) + " of them trained");
}

void seed_all(c10::Device device, std::uint64_t seed) {
  at::manual_seed(seed);
  if (device.is_cpu()) return;
  at::Generator generator = at::globalContext().defaultGenerator(device);
  generator.set_current_seed(seed);
}

}  // namespace

config::Resolved config_of(const Json& request) {
  config::Sources sources{.preset = request.at("preset").get<std::string>(),
                          .file = {},
                          .overrides = request.at("overrides").get<std::vector<std::string>>()};
  if (const Json& base = request.at("base"); !base.is_null())
    sources.base = base.get<std::string>();
  if (const Json& file = request.at("file"); !file.is_null())
    sources.file = file.get<std::string>();
  config::Resolved config = config::resolve(config::training_keys(), sources);
  for (const auto& [key, value] : request.at("chosen").items()) config.set(key, value, "chosen");
  return config;
}

std::string model_name_of(const config::Resolved& config) {
  const std::string kind = config.text("model");
  std::filesystem::path name = kind == "gpt-tiny" ? kind : config.text("model.config");
  if (!name.has_filename()) name = name.parent_path();  // "models/gpt/"
  if (name.filename() == "config.json") name = name.parent_path();
  return name.filename().string();
}

TrainingJob job_on(c10::Device device, const config::Resolved& config, std::int64_t outputs,
                   bool reads_weights, const std::function<void(std::string_view)>& say) {
  const auto weights = reads_weights ? weights_of(config) : std::nullopt;
  const auto adapter = adapter_of(config);
  const model::NamedModel named = model_of(config, outputs);
  const auto memory = [&](const char* when) { say(memory::log_gpu_memory_stats(when, device)); };
  seed_all(device, static_cast<std::uint64_t>(config.whole("seed")));
  TrainingJob job;
  job.model = libtorch::on(
      device, [&] { return models::build(named.config, build_settings(config, named.config)); });
  std::vector<std::string> lacking;
  if (weights) {
    const weights::Loaded loaded = weights::load(*job.model, *weights, {.skip_other_shapes = true});
    say(weights::to_string(loaded));
    lacking = loaded.missing;
    for (const weights::OtherShape& other : loaded.other_shapes) lacking.push_back(other.name);
  } else {
    models::initialise(*job.model);
  }
  memory("model on the device");
  job.lora = choose_what_is_trained(*job.model, config, adapter);
  if (weights) check_frozen(job.model->module(), lacking, *weights);
  job.model->train();
  job.optimizer = optimizer_of(config, trained(job.model->module()));
  job.words = words_of(named.name, job.model->module());
  memory("optimizer made");
  return job;
}

train::StepOptions step_options_of(const config::Resolved& config, std::int64_t steps) {
  train::StepOptions options;
  options.max_grad_norm = config.number("max_grad_norm");
  if (config.yes("fp16") && config.yes("bf16"))
    throw UsageError(expectation("fp16", "one of fp16 and bf16", "both", "bf16=true alone"));
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
  for (const plan::Rung& rung : plan::rungs()) {
    const std::size_t equals = rung.key.find('=');
    if (config.text(rung.key.substr(0, equals)) == rung.key.substr(equals + 1))
      options.plan.techniques.insert(rung.name);
  }
  options.prices = config.yes("auto_batch_size");
  return options;
}

}  // namespace headroom::cli
