#include "headroom/forecast/detail/decide.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/base/error.h"
#include "headroom/base/text.h"
#include "headroom/forecast/detail/architectures.h"
#include "headroom/model/can_run.h"
#include "headroom/model/positions.h"
#include "headroom/model/tasks.h"

namespace headroom::forecast::detail {
namespace {

void assume(Forecast& forecast, std::string_view option, std::int64_t value,
            std::string_view why = {}) {
  forecast.assumed.push_back("no " + std::string(option) + " given, " + std::to_string(value) +
                             " assumed" + std::string(why));
}

// Refuses settings that the task does not support or that contradict each other.
void check_choices(const model::Settings& settings, const model::ModelConfig& config) {
  const model::Task task = *settings.task;
  const bool writes = task == model::Task::causal_lm || task == model::Task::seq2seq_lm;
  if (settings.mode == model::Mode::generate && !writes)
    throw UsageError(expectation("forecast", "a task that writes tokens, to generate",
                                 std::string(to_string(task)) + " of " + config.type(),
                                 "inference"));
  if (settings.loss != model::LossForm::full && !writes && task != model::Task::masked_lm)
    throw UsageError(expectation("forecast", "a loss over tokens, to take it in parts",
                                 to_string(task), "the full loss"));
  if (settings.optimizer_in_backward && (settings.clip || settings.accumulation > 1))
    throw UsageError(expectation("forecast",
                                 "gradients that stay until the step, to clip or to sum them",
                                 "optimizer-in-backward", "either without the other"));
}

void assume_sizes(Forecast& forecast, const model::Settings& said,
                  const model::ModelConfig& config) {
  const model::Settings& settings = forecast.settings;
  if (settings.image && !said.image)
    assume(forecast, "--image", *settings.image,
           config.has("image_size") ? " from the configuration" : "");
  if (settings.seq && !said.seq) assume(forecast, "--seq", *settings.seq);
  if (settings.target_seq && !said.target_seq)
    assume(forecast, "--target-seq", *settings.target_seq, " as --seq");
}

}  // namespace

void decide(Forecast& forecast, const model::ModelConfig& config) {
  model::Settings& settings = forecast.settings;
  if (settings.batch < 1)
    throw UsageError(
        expectation("forecast", "at least one row", std::to_string(settings.batch), "1"));
  const bool says_task = settings.task || !config.architectures().empty();
  settings.task = model::task_for(config, settings.task);
  if (!says_task)
    forecast.assumed.push_back("no --task given, " + std::string(to_string(*settings.task)) +
                               " assumed");
  check_choices(settings, config);
  const model::Settings said = settings;
  model::settle_sizes(config, settings);
  settings.attention = model::attention_of(config, settings.transformers, settings.attention);
  assume_sizes(forecast, said, config);
  model::check_image(config, said);
  if (settings.seq) model::check_sequence(config, *settings.seq);
  for (const std::string& key : config.defaulted()) forecast.assumed.push_back(key);
}

}  // namespace headroom::forecast::detail
