// Optimizers with smaller states, or with fewer temporaries.
#include "headroom/plan/technique.h"

namespace headroom::plan {

using model::Optimizer;
using model::Settings;

static std::vector<Change> smaller_optimizers(const Situation& now) {
  if (!now.trains()) return {};
  const Settings& settings = now.settings;
  const bool is_adam =
      settings.optimizer == Optimizer::adam || settings.optimizer == Optimizer::adamw;
  const bool has_fused = is_adam || settings.optimizer == Optimizer::sgd ||
                         settings.optimizer == Optimizer::sgd_momentum;
  std::vector<Change> all;
  if (has_fused && settings.form != model::OptimizerForm::fused)
    all.push_back(change(now, "a fused optimizer", "--optimizer-impl fused",
                         [](Settings& s) { s.form = model::OptimizerForm::fused; }));
  const auto other = [&](bool possible, const char* title, const char* option, Optimizer kind) {
    if (possible)
      all.push_back(other_training(now, title, option, [&](Settings& s) {
        s.optimizer = kind;
        if (!model::can_round(kind)) s.rounding = model::Rounding::nearest;
      }));
  };
  other(is_adam, "Adam in 8 bit", "--optimizer adamw8bit", Optimizer::adamw8bit);
  other(is_adam || settings.optimizer == Optimizer::adamw8bit, "Adam in 4 bit",
        "--optimizer adamw4bit", Optimizer::adamw4bit);
  other(is_adam || settings.optimizer == Optimizer::adamw8bit, "Adafactor", "--optimizer adafactor",
        Optimizer::adafactor);
  other(settings.optimizer != Optimizer::sgd && settings.optimizer != Optimizer::none, "plain SGD",
        "--optimizer sgd", Optimizer::sgd);
  if (!settings.optimizer_in_backward && settings.accumulation == 1 && !settings.clip)
    all.push_back(change(now, "each parameter's update in the backward pass",
                         "--optimizer-in-backward",
                         [](Settings& s) { s.optimizer_in_backward = true; }));
  if (settings.zero_gradients)
    all.push_back(change(now, "gradients freed after the step", "--zero-grad none",
                         [](Settings& s) { s.zero_gradients = false; }));
  return all;
}

Technique optimizer() {
  return {.options = {{"optimizer", Option::Kind::word, "Optimizer", model::choices<Optimizer>},
                      {"optimizer_impl", Option::Kind::word,
                       "PyTorch's implementation of the optimizer",
                       model::choices<model::OptimizerForm>},
                      {"optimizer_in_backward", Option::Kind::flag,
                       "Update each parameter as soon as its gradient is ready"},
                      {"zero_grad", Option::Kind::word,
                       "Free the gradients (none, the default) or set them to zero (zero)"}},
          .changes = smaller_optimizers};
}

}  // namespace headroom::plan
