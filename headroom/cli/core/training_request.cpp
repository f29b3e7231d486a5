#include "headroom/cli/core/training_request.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "headroom/model/tasks.h"

namespace headroom::cli {
namespace {

// A GPT-2 that trains on a CPU in seconds.
Json gpt_tiny(std::int64_t vocabulary) {
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"model_type", "gpt2"},
          {"n_embd", 64},
          {"n_head", 4},
          {"n_layer", 2},
          {"n_positions", 256},
          {"vocab_size", vocabulary},
          {"bos_token_id", 0},
          {"eos_token_id", 0}};
}

}  // namespace

bool trains_on_images(const config::Resolved& config) {
  const std::string dataset = config.text("dataset");
  if (dataset == "flowers102" || dataset == "cub200" || dataset == "images") return true;
  if (dataset == "tokens" || config.text("model") == "gpt-tiny") return false;
  const auto config_of_model = model::model_named(config.text("model.config")).config;
  return model::tasks_of(config_of_model).front() == model::Task::image_classification;
}

model::NamedModel model_of(const config::Resolved& config, std::int64_t outputs) {
  if (config.text("model") == "gpt-tiny")
    return {"gpt-tiny", {gpt_tiny(std::max<std::int64_t>(outputs, 256)), "gpt-tiny"}, ""};
  model::NamedModel model = model::model_named(config.text("model.config"));
  if (outputs > 0 && trains_on_images(config)) model.config = model.config.with_labels(outputs);
  return model;
}

model::Settings settings_of(const config::Resolved& config, const model::ModelConfig& model) {
  model::Settings settings;
  const std::string kind = config.text("model");
  settings.task =
      trains_on_images(config) ? model::Task::image_classification : model::task_for(model, {});
  settings.batch = config.whole("batch_size");
  settings.accumulation = config.whole("gradient_accumulation_steps");
  settings.seq = config.optional_whole("seq");
  if (kind == "gpt-tiny" && !settings.seq) settings.seq = 64;
  settings.image = config.optional_whole("image");
  settings.attention = model::choice<model::Attention>(config.text("attention"));
  settings.mask = model::Mask::none;
  if (config.yes("fp16")) settings.autocast = model::Autocast::fp16;
  if (config.yes("bf16")) settings.autocast = model::Autocast::bf16;
  settings.optimizer = model::choice<model::Optimizer>(config.text("optimizer"));
  const std::string checkpointing = config.text("gradient_checkpointing");
  if (checkpointing == "true") settings.checkpoint_every = 1;
  if (const auto every = config.number_in("gradient_checkpointing"))
    settings.checkpoint_every = *every;
  const std::string loss = config.text("loss");
  if (loss == "fused") settings.loss = model::LossForm::fused;
  if (const auto chunk = config.number_in("loss")) {
    settings.loss = model::LossForm::chunked;
    settings.loss_chunk = *chunk;
  }
  settings.offload.activations = config.text("offload") == "activations";
  if (const double norm = config.number("max_grad_norm"); norm > 0) settings.clip = norm;
  if (kind == "lora") {
    settings.lora_rank = config.whole("model.lora_r");
    settings.lora_targets = config.words("model.lora_targets");
  }
  settings.freeze_backbone = kind == "linear_probe";
  return settings;
}

std::string job_of(const config::Resolved& config) {
  const std::string kind = config.text("model");
  const std::string name = kind == "gpt-tiny" ? kind : config.text("model.config");
  const std::string what = kind == "lora"
                               ? "adapters of rank " + std::to_string(config.whole("model.lora_r"))
                           : kind == "linear_probe" ? "its head"
                                                    : "all weights";
  return name + ", " + what + ", on " + config.text("dataset");
}

}  // namespace headroom::cli
