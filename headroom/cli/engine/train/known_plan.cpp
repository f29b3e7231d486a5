#include "headroom/cli/engine/train/known_plan.h"

#include <nlohmann/json.hpp>

#include "headroom/base/error.h"
#include "headroom/cli/core/training_request.h"
#include "headroom/memory/memory_statistics.h"

namespace headroom::cli {

supervise::Setup setup_of(const config::Resolved& config, c10::Device device) {
  const auto now = memory::get_gpu_memory_stats(device);
  return {.job = "train " + to_line(model::to_json(settings_of(config, model_of(config).config))) +
                 " " + job_of(config),
          .card = device.is_cpu() ? "cpu" : to_string(now.total.value_or(Bytes{})),
          .free = now.obtainable().value_or(now.reserved)};
}

void remember(const supervise::Setup& setup, const train::Plan& plan, Bytes peak,
              TrainingView& view) {
  try {
    supervise::Store().remember(setup,
                                {{"batch", plan.micro_batch},
                                 {"checkpointing", plan.checkpointing},
                                 {"fused_loss", plan.fused_loss},
                                 {"offload", plan.offload}},
                                peak);
  } catch (const WriteError& error) {
    view.say("the plan is not remembered: " + error.sentence());
  }
}

// Where prices are known, only if a larger batch has failed with as much memory as there is now.
std::optional<train::Plan> remembered(const supervise::Setup& setup, train::Step& step) {
  const auto known = supervise::Store().find(setup);
  if (!known || (step.prices() != nullptr && known->tried_up_to < setup.free)) return {};
  const auto value = [&](const char* key) {
    const auto found = known->values.find(key);
    return found == known->values.end() ? 0 : found->second;
  };
  train::Plan plan = step.plan();
  plan.micro_batch = value("batch");
  plan.checkpointing = plan.checkpointing || value("checkpointing") != 0;
  plan.fused_loss = plan.fused_loss || value("fused_loss") != 0;
  plan.offload = plan.offload || value("offload") != 0;
  return plan;
}

}  // namespace headroom::cli
