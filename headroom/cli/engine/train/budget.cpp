#include "headroom/cli/engine/train/budget.h"

#include <optional>
#include <string>

#include "headroom/forecast/closed_form.h"
#include "headroom/memory/memory_statistics.h"
#include "headroom/plan/policies.h"

namespace headroom::cli {
namespace {

std::optional<std::string> over_budget(const config::Training& training, std::int64_t outputs,
                                       c10::Device device) {
  if (device.is_cpu()) return {};
  const auto now = memory::get_gpu_memory_stats(device);
  if (!now.total) return {};
  model::Settings settings = training.settings;
  if (training.config.text("quantize") == "auto") settings.quantize = model::Quantize::int4;
  const Bytes resident = forecast::forecast_of(training.model_for(outputs), settings).resident;
  const ShareOrBytes given = training.config.share_or_bytes("budget");
  const Bytes budget = given.share ? plan::resident_budget(*now.total, *given.share) : given.bytes;
  if (resident <= budget) return {};
  return "parameters, gradients and optimizer states take " + to_string(resident) +
         ", more than the budget of " + to_string(budget) + ": " +
         std::to_string(plan::cards_for(resident, budget)) + " such cards would hold them";
}

}  // namespace

bool allows_budget(const config::Training& training, std::int64_t outputs, c10::Device device,
                   TrainingView& view) {
  const auto why = over_budget(training, outputs, device);
  if (!why) return true;
  const bool is_given = training.config.is_given("budget");
  view.say(*why + (is_given ? "; try a larger budget, model=lora, or optimizer=sgd"
                            : ", and this one has little room for a step"));
  return !is_given;
}

}  // namespace headroom::cli
