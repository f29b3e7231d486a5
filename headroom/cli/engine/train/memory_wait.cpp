#include "headroom/cli/engine/train/memory_wait.h"

#include "headroom/base/time.h"
#include "headroom/memory/memory_statistics.h"

namespace headroom::cli {

bool wait_for_memory(train::Step& step, std::int64_t rows, std::optional<Bytes> alone,
                     const config::Resolved& config, const Interrupt& interrupt,
                     TrainingView& view) {
  if (step.device().is_cpu()) return false;
  const auto usable = [&] { return step.usable().value_or(Bytes{}); };
  const Bytes had = usable();
  const auto least = step.least_plan(rows);
  // Where that is not known, more than now.
  const Bytes need = least ? least->needed : had + Bytes{1};
  const auto all = [&] { return memory::get_gpu_memory_stats(step.device()).total; };
  if (had >= need || alone.value_or(all().value_or(Bytes{})) < need) return false;
  view.say("no plan is left; waiting until " + step.device().str() + " has " + to_string(need) +
           " for this run; it has " + to_string(had));
  const Seconds timeout(60 * config.number("gpu_wait_timeout_minutes")),
      interval(config.number("gpu_check_interval_seconds"));
  const auto begun = Clock::now();
  while (usable() < need)
    if (Clock::now() - begun >= timeout || !sleep_for(interval, interrupt.token())) return false;
  return true;
}

}  // namespace headroom::cli
