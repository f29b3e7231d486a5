#include "headroom/model/can_run.h"

namespace headroom::model {

std::vector<std::string> cannot_run(const Settings& settings) {
  std::vector<std::string> names;
  const auto note = [&](bool set, const std::string& text) {
    if (set) names.push_back(text);
  };
  note(settings.quantize != Quantize::none,
       "--quantize " + std::string(to_string(settings.quantize)));
  note(settings.optimizer == Optimizer::adamw8bit, "--optimizer adamw8bit");
  note(settings.optimizer_in_backward, "--optimizer-in-backward");
  note(settings.rounding == Rounding::stochastic, "--rounding stochastic");
  note(settings.offload.optimizer, "--offload optimizer");
  note(settings.offload.gradients, "--offload gradients");
  note(settings.offload.parameters, "--offload parameters");
  note(settings.world > 1, "--world " + std::to_string(settings.world));
  note(settings.zero > 0, "--zero " + std::to_string(settings.zero));
  note(settings.mode == Mode::generate, "--mode generate");
  return names;
}

Attention attention_of(const ModelConfig& config, Transformers version, Attention asked) {
  const std::string& type = config.type();
  const bool newest = version == Transformers::v5;
  const bool only_eager =
      type == "gpt_neo" || (type == "gemma2" && newest) || (type == "t5" && !newest);
  return only_eager ? Attention::eager : asked;
}

}  // namespace headroom::model
