// Learning rates that change from step to step: functions from the step's number, which begins at
// 0, to a factor on the learning rate.
//
//   const optim::Schedule schedule = optim::warmed_up(100, optim::cosine(900));
//   for (std::int64_t step = 0; step < 1000; ++step) {
//     optimizer->set_learning_rate(1e-3 * schedule(step));
//     ...
//   }
//
// A schedule has no state: saving the step's number saves it. The numbers are those of PyTorch's
// schedulers (one_cycle: OneCycleLR, stepped: StepLR) and of transformers'
// get_..._schedule_with_warmup (warmed_up with one of the others).
//
// Each function throws UsageError for counts below 1 and other numbers that make no sense. After
// `steps` each keeps its last factor.
#pragma once

#include <cstdint>
#include <functional>

namespace headroom::optim {

using Schedule = std::function<double(std::int64_t step)>;

[[nodiscard]] Schedule constant();
// Rises evenly from 0 to the first factor of `then`, which begins after `steps`; 0 steps: at once.
[[nodiscard]] Schedule warmed_up(std::int64_t steps, Schedule then);
// Falls evenly from 1 to `last`.
[[nodiscard]] Schedule linear(std::int64_t steps, double last = 0);
// Falls from 1 to `last` along half a cosine wave; cycles = 1.5 rises again and falls once more.
[[nodiscard]] Schedule cosine(std::int64_t steps, double last = 0, double cycles = 0.5);
// last + (1 - last) * (1 - step / steps) ^ power
[[nodiscard]] Schedule polynomial(std::int64_t steps, double power, double last = 0);
// Multiplies by `factor` after each `every` steps.
[[nodiscard]] Schedule stepped(std::int64_t every, double factor = 0.1);

struct OneCycleOptions {
  double rising = 0.3;         // the share of the steps that rise
  double first = 1.0 / 25;     // of the largest rate, at the beginning
  double last = 1.0 / 250000;  // and at the end
};
// Rises to 1 and falls again, each along half a cosine wave.
[[nodiscard]] Schedule one_cycle(std::int64_t steps, const OneCycleOptions& options = {});

}  // namespace headroom::optim
