#include "headroom/cli/engine/train/memory_wait.h"

#include "headroom/base/error.h"
#include "headroom/base/time.h"
#include "headroom/memory/memory_statistics.h"

namespace headroom::cli {

bool fits_when_alone(const BesideOthers& run) {
  const auto least = run.step.least_plan(run.rows);
  return run.alone && least && least->needed <= *run.alone;
}

bool wait_for_memory(const BesideOthers& run) {
  train::Step& step = run.step;
  if (step.device().is_cpu()) return false;
  const auto usable = [&] { return step.usable().value_or(Bytes{}).least(); };
  const Bytes had = usable();
  const auto least = step.least_plan(run.rows);
  // Where that is not known, more than now.
  const Bytes need = least ? least->needed : had + Bytes{1};
  const auto all = [&] { return memory::get_gpu_memory_stats(step.device()).total; };
  if (had >= need || run.alone.value_or(all().value_or(Bytes{})) < need) return false;
  run.view.say("no plan is left; waiting until " + step.device().str() + " has " + to_string(need) +
               " for this run; it has " + to_string(had));
  const Seconds timeout(60 * run.config.number("gpu_wait_timeout_minutes")),
      interval(run.config.number("gpu_check_interval_seconds"));
  const auto begun = Clock::now();
  while (usable() < need)
    if (Clock::now() - begun >= timeout || !sleep_for(interval, run.interrupt.token()))
      return false;
  return true;
}

PlanAnswer answer_beside_others(const BesideOthers& run) {
  PlanAnswer answer = plan_answer(run.step, run.rows);
  if (answer.fits || !fits_when_alone(run)) return answer;
  const bool waits = run.config.yes("wait_for_gpu");
  if (waits && (wait_for_memory(run) || run.interrupt.happened()))
    return plan_answer(run.step, run.rows);
  throw BusyError(to_string(answer) + " beside the other jobs on " + run.step.device().str() +
                  (waits ? "" : "; try wait_for_gpu=true"));
}

}  // namespace headroom::cli
