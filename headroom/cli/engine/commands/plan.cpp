// `headroom-engine plan`: the dry runs behind `headroom plan`.
#include <memory>
#include <nlohmann/json.hpp>

#include "headroom/allocator/settings.h"
#include "headroom/base/file.h"
#include "headroom/cli/core/planning/planner.h"
#include "headroom/cli/core/view/plan_view.h"
#include "headroom/cli/engine/commands.h"
#include "headroom/estimate/price_stages.h"

namespace headroom::cli {
namespace {

// As `headroom train` with these keys sets them.
allocator::Settings allocator_of(const config::Training& training) {
  const std::string text = training.config.text("alloc_conf");
  if (!text.empty()) return allocator::parse_settings(text);
  return allocator::effective_settings(
             [](const std::string& name) { return environment(name.c_str()); })
      .settings;
}

}  // namespace

ExitCode run_plan(const Json& request) {
  const PlanQuestion question = plan_question_from(request.at("question"));
  const MakeDryRuns make = [](const config::Training& training,
                              const std::vector<gpu::SimulatedCard>& cards) -> plan::PriceStage {
    const auto prices =
        std::make_shared<estimate::StagePrices>(training, cards, allocator_of(training));
    return [prices](const plan::Stage& stage) { return prices->of(stage); };
  };
  return print_plan(question, plan_for(question, make), request.at("json").get<bool>());
}

}  // namespace headroom::cli
