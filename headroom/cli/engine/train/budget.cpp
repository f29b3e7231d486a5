#include "headroom/cli/engine/train/budget.h"

#include <torch/nn/module.h>

#include <cmath>
#include <optional>
#include <string>

#include "headroom/forecast/closed_form.h"
#include "headroom/memory/memory_statistics.h"
#include "headroom/plan/policies.h"

namespace headroom::cli {
namespace {

// The share of the model's parameters that each stage has.
std::vector<double> shares_of(const recipe::Model& model) {
  std::vector<double> shares;
  double all = 0;
  for (const auto& stage : model.first_replica()) {
    double own = 0;
    for (const at::Tensor& one : stage->module().parameters())
      own += static_cast<double>(one.numel());
    shares.push_back(own);
    all += own;
  }
  for (double& share : shares) share /= all;
  return shares;
}

std::optional<std::string> over_budget(const config::Training& training, std::int64_t outputs,
                                       const recipe::Model& model,
                                       const std::vector<c10::Device>& devices) {
  model::Settings settings = training.settings;
  if (training.config.text("quantize") == "auto") settings.quantize = model::Quantize::int4;
  const Bytes whole = forecast::forecast_of(training.model_for(outputs), settings).resident;
  const ShareOrBytes given = training.config.share_or_bytes("budget");
  const std::vector<double> shares = shares_of(model);
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    if (devices[rank].is_cpu()) return {};
    const auto total = memory::get_gpu_memory_stats(devices[rank]).total;
    if (!total) return {};
    const double share = shares[rank % shares.size()];
    const Bytes resident =
        model.stages == 1 ? whole : Bytes{std::llround(share * static_cast<double>(whole.count))};
    const Bytes budget = given.share ? plan::resident_budget(*total, *given.share) : given.bytes;
    if (resident <= budget) continue;
    return "parameters, gradients and optimizer states take " + to_string(resident) +
           (model.stages == 1 ? "" : " of " + devices[rank].str()) + ", more than the budget of " +
           to_string(budget) + ": " + std::to_string(plan::cards_for(whole, budget)) +
           " such cards would hold them";
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
