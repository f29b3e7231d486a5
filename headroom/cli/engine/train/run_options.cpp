#include "headroom/cli/engine/train/run_options.h"

#include <nlohmann/json.hpp>

#include "headroom/config/training_keys.h"

namespace headroom::cli {

config::Training training_of(const Json& request) {
  return config::Training(
      config::Resolved::restored(config::training_keys(), request.at("config")));
}

train::TrainerOptions trainer_options_of(const Json& request, const config::Resolved& config,
                                         std::int64_t steps) {
  const auto is_asked = [&](const char* what) { return request.at(what).get<bool>(); };
  const bool is_dry = is_asked("dry_run");
  train::TrainerOptions options;
  options.epochs = config.optional_whole("epochs").value_or(1);
  options.steps = steps;
  options.evaluate_every = config.optional_whole("eval_every").value_or(0);
  options.patience = config.whole("early_stop");
  options.evaluation.micro_batch = config.optional_whole("eval_batch_size").value_or(0);
  options.evaluation.predicts = is_asked("json") && is_asked("eval_only");
  options.resume = !is_dry && (is_asked("goes_on") || is_asked("resume"));
  options.save_every = config.optional_whole("save_every").value_or(0);
  options.keep_last = static_cast<int>(config.whole("keep_last"));
  options.plan_schedule = config.optional_text("plan_schedule").value_or("");
  options.clear_memory_on_start = config.yes("clear_memory_on_start");
  options.check_memory_every = config.whole("check_memory_every_n_steps");
  options.emergency_clean_above = config.number("emergency_clean_above");
  options.clear_cache_every = config.whole("clear_cache_every_n_steps");
  const bool writes = !is_dry && !is_asked("eval_only");
  (writes ? options.out : options.resume_from) = config.text("out");
  return options;
}

}  // namespace headroom::cli
