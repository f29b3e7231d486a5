// Makes a training's model where there is memory for it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "headroom/cli/engine/train/training_machine.h"
#include "headroom/cli/engine/train/training_view.h"
#include "headroom/recipe/recipe.h"
#include "headroom/train/event.h"
#include "headroom/train/oom_report.h"

namespace headroom::cli {

// Makes the model on the machine's own devices; once more if memory runs out on the way, then with
// quantize=auto in fewer bits, and then on the other devices that the settings allow, each of which
// becomes `machine.own`. Each failure is shown, and added to `events`. If it fits nowhere,
// `explain` gets a report of the holders of the memory, and OutOfMemoryError is thrown.
// `reads_weights` as in recipe::ModelOptions.
[[nodiscard]] recipe::Model model_where_it_fits(
    TrainingMachine& machine, const config::Training& training, std::int64_t outputs,
    bool reads_weights, TrainingView& view, std::vector<train::Event>& events,
    const std::function<void(const train::OomReport&)>& explain);

}  // namespace headroom::cli
