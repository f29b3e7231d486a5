#include "headroom/cli/engine/train/budget.h"

#include <numeric>
#include <optional>
#include <string>

#include "headroom/base/text.h"
#include "headroom/forecast/closed_form.h"
#include "headroom/memory/memory_statistics.h"
#include "headroom/plan/policies.h"

namespace headroom::cli {
namespace {

// What stays of each stage.
std::vector<Bytes> resident_by_stage(const recipe::Model& model, const std::vector<Bytes>& layers) {
  std::vector<Bytes> stages;
  for (const auto& stage : model.first_replica()) {
    const auto part = stage->settings().part.value_or(
        models::Part{.first = 0, .count = static_cast<std::int64_t>(layers.size())});
    const auto first = layers.begin() + part.first;
    stages.push_back(std::accumulate(first, first + part.count, Bytes{}));
  }
  return stages;
}

std::optional<std::string> over_budget(const config::Training& training, std::int64_t outputs,
                                       const recipe::Model& model,
                                       const std::vector<c10::Device>& devices) {
  model::Settings settings = training.settings;
  if (training.config.text("quantize") == "auto") settings.quantize = model::Quantize::int4;
  const forecast::Forecast forecast = forecast::forecast_of(training.model_for(outputs), settings);
  const std::vector<Bytes> layers = plan::resident_by_layer(forecast);
  const ShareOrBytes given = training.config.share_or_bytes("budget");
  const std::vector<Bytes> stages = resident_by_stage(model, layers);
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    if (devices[rank].is_cpu()) return {};
    const auto total = memory::get_gpu_memory_stats(devices[rank]).total;
    if (!total) return {};
    const Bytes resident = stages[rank % stages.size()];
    const Bytes budget = given.share ? plan::resident_budget(*total, *given.share) : given.bytes;
    if (resident <= budget) continue;
    const auto cards = plan::cards_for(layers, budget);
    return "parameters, gradients and optimizer states take " + to_string(resident) +
           (model.stages == 1 ? "" : " of " + devices[rank].str()) + ", more than the budget of " +
           to_string(budget) + ": " +
           (cards ? counted(*cards, "such card") +
                        " would hold them, as stages=" + std::to_string(*cards)
                  : "no number of such cards holds them, because one layer is too large");
  }
  return {};
}

}  // namespace

bool allows_budget(const config::Training& training, std::int64_t outputs,
                   const recipe::Model& model, const std::vector<c10::Device>& devices,
                   TrainingView& view) {
  const auto why = over_budget(training, outputs, model, devices);
  if (!why) return true;
  const bool is_given = training.config.is_given("budget");
  view.say(*why + (is_given ? "; try a larger budget, model=lora, or optimizer=sgd"
                            : ", and this one has little room for a step"));
  return !is_given;
}

}  // namespace headroom::cli
