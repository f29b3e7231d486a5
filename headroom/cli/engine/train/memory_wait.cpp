#include "headroom/cli/engine/train/memory_wait.h"

#include "headroom/base/error.h"
#include "headroom/base/text.h"
#include "headroom/base/time.h"
#include "headroom/memory/memory_statistics.h"

namespace headroom::cli {

static std::string names_of(const train::Step& step) {
  std::vector<std::string> names;
  for (const c10::Device device : step.devices()) names.push_back(device.str());
  return listed(names);
}

// Of the plan that needs the least; std::nullopt if not known.
static std::optional<train::PerStage> least_need(const BesideOthers& run) {
  const auto least = run.step.least_plan(run.rows);
  if (!least) return {};
  return run.step.prices()->needed(least->plan,
                                   {.rows = run.step.layout().rows_of_largest(run.rows)});
}

bool fits_when_alone(const BesideOthers& run) {
  const auto need = least_need(run);
  return run.alone && need && need->fits(*run.alone);
}

bool wait_for_memory(const BesideOthers& run) {
  train::Step& step = run.step;
  if (step.device().is_cpu()) return false;
  const auto usable = [&] { return step.usable().value_or(Bytes{}); };
  const train::PerStage had = usable();
  // Where that is not known, more than now.
  const auto known = least_need(run);
  const train::PerStage need =
      known ? *known : had.each([](Bytes bytes) { return bytes + Bytes{1}; });
  const auto all = [&] { return memory::get_gpu_memory_stats(step.device()).total; };
  if (need.fits(had) || !need.fits(run.alone.value_or(all().value_or(Bytes{})))) return false;
  const int stages = step.layout().stages;
  run.view.say("no plan is left; waiting until " + names_of(step) +
               (step.devices().size() == 1 ? " has " : " have ") + to_string(need, stages) +
               " for this run, which now can have " + to_string(had, stages));
  const Seconds timeout(60 * run.config.number("gpu_wait_timeout_minutes")),
      interval(run.config.number("gpu_check_interval_seconds"));
  const auto begun = Clock::now();
  while (!need.fits(usable()))
    if (Clock::now() - begun >= timeout || !sleep_for(interval, run.interrupt.token()))
      return false;
  return true;
}

PlanAnswer answer_beside_others(const BesideOthers& run) {
  PlanAnswer answer = plan_answer(run.step, run.rows);
  if (answer.fits || answer.spills || !fits_when_alone(run)) return answer;
  const bool waits = run.config.yes("wait_for_gpu");
  if (waits && (wait_for_memory(run) || run.interrupt.happened()))
    return plan_answer(run.step, run.rows);
  throw BusyError(to_string(answer) + " beside the other jobs on " + names_of(run.step) +
                  (waits ? "" : "; try wait_for_gpu=true"));
}

}  // namespace headroom::cli
