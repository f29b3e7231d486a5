#include "headroom/model/can_run.h"

#include "headroom/base/error.h"

namespace headroom::model {

std::vector<std::string> cannot_run(const Settings& settings) {
  std::vector<std::string> names;
  const auto note = [&](bool set, const std::string& text) {
    if (set) names.push_back(text);
  };
  note(settings.optimizer_in_backward, "--optimizer-in-backward");
  note(settings.offload.optimizer, "--offload optimizer");
  note(settings.offload.gradients, "--offload gradients");
  note(settings.offload.parameters, "--offload parameters");
  note(settings.world > 1, "--world " + std::to_string(settings.world));
  note(settings.zero > 0, "--zero " + std::to_string(settings.zero));
  note(settings.mode == Mode::generate, "--mode generate");
  return names;
}

void check_quantize(const Settings& settings) {
  const bool is_frozen =
      settings.lora_rank > 0 || settings.freeze_backbone || settings.mode != Mode::train;
  if (settings.quantize == Quantize::none || is_frozen) return;
  throw UsageError(expectation(
      "--quantize",
      "frozen weights, as beside adapters (--lora-rank 8), below a trained head "
      "(--freeze-backbone) or in --mode inference",
      "a training of all weights",
      "--optimizer adamw8bit --dtype bfloat16, which shrinks what such a training keeps"));
}

void check_rounding(const Settings& settings) {
  if (settings.rounding == Rounding::nearest || settings.mode != Mode::train) return;
  if (!can_round(settings.optimizer))
    throw UsageError(expectation("--rounding", "an optimizer that rounds stochastically",
                                 "--optimizer " + std::string(to_string(settings.optimizer)),
                                 "--optimizer adamw, adamw8bit, adamw4bit, sgd or sgd-momentum"));
  if (settings.form != OptimizerForm::fused)
    throw UsageError(expectation("--rounding", "the fused form, which rounds stochastically",
                                 "--optimizer-impl " + std::string(to_string(settings.form)),
                                 "--optimizer-impl fused"));
}

Attention attention_of(const ModelConfig& config, Transformers version, Attention asked) {
  const std::string& type = config.type();
  const bool newest = version == Transformers::v5;
  const bool only_eager =
      type == "gpt_neo" || (type == "gemma2" && newest) || (type == "t5" && !newest);
  return only_eager ? Attention::eager : asked;
}

}  // namespace headroom::model
