// Fewer rows in a forward pass, or shorter ones.
#include "headroom/plan/technique.h"

namespace headroom::plan {

using model::Settings;

// Gradient accumulation keeps the effective batch. It needs gradients that last until the step.
static void add_smaller_batches(const Situation& now, std::vector<Change>& all) {
  const Settings& settings = now.settings;
  if (now.trains() && settings.optimizer_in_backward) return;
  for (std::int64_t batch = settings.batch / 2; batch >= 1; batch /= 2) {
    if (settings.batch % batch != 0) continue;
    const std::int64_t accumulation =
        now.trains() ? settings.accumulation * (settings.batch / batch) : 1;
    std::string option = "--batch " + std::to_string(batch);
    if (now.trains()) option += " --accumulation " + std::to_string(accumulation);
    all.push_back(change(now, "a smaller batch", option,
                         [&](Settings& s) { s.batch = batch, s.accumulation = accumulation; }));
    all.back().is_a_size = true;
  }
}

static void add_shorter_sequence(const Situation& now, std::vector<Change>& all) {
  const std::int64_t seq = now.settings.seq.value_or(1) / 2,
                     target = now.settings.target_seq.value_or(1) / 2;
  if (now.settings.task == model::Task::image_classification || seq == 0) return;
  std::string option = "--seq " + std::to_string(seq);
  if (target > 0) option += " --target-seq " + std::to_string(target);
  all.push_back(change(now, "a shorter sequence", option, [&](Settings& s) {
    s.seq = seq;
    if (target > 0) s.target_seq = target;
  }));
  all.back().changes_training = now.trains();
  all.back().is_last_resort = true;
}

Technique smaller_input() {
  return {.changes = [](const Situation& now) {
    std::vector<Change> all;
    add_smaller_batches(now, all);
    add_shorter_sequence(now, all);
    return all;
  }};
}

}  // namespace headroom::plan
