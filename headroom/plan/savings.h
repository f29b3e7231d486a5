// All changes of a run's settings that save memory for a model, with their savings and their price.
//
//   const SavingOptions options{.card = gpu::find_card("RTX 4090")};
//   for (const Saving& saving : savings(config, settings, options))
//     say(saving.option, to_string(saving.saves), saving.time_factor);
//
// Times come from forecast/step_time.h. A time factor is per token: 2 means half the speed.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "headroom/base/bytes.h"
#include "headroom/forecast/closed_form.h"
#include "headroom/gpu/catalogue.h"
#include "headroom/model/model_config.h"
#include "headroom/model/run_settings.h"
#include "headroom/plan/technique.h"

namespace headroom::plan {

struct Saving : Change {
  Bytes needs;    // reserved at the peak
  Bytes process;  // reserved, and the CUDA context where the card's is known
  Bytes saves;    // allocated bytes at the peak
  Bytes saves_process;
  double time_factor = 1;
  bool fits = true;     // into the room, if one is given
  bool can_run = true;  // by SavingOptions::can_run
};

struct SavingOptions {
  const gpu::CatalogueCard* card = nullptr;  // null means times of an A100
  int gpus = 1;
  // std::nullopt: the card's, less its context and the margin of plannable().
  std::optional<Bytes> room = {};
  // Without a function, everything can run, or every change is allowed.
  std::function<bool(const model::Settings&)> can_run = {};
  std::function<bool(const model::Settings&)> allows = {};
};

// Returns the changes that save memory and are not in use yet, best first: those that are enough
// before those that are not, those that leave the training unchanged before those that change it,
// the faster before the slower. A shorter sequence comes last.
[[nodiscard]] std::vector<Saving> savings(const model::ModelConfig& config,
                                          const model::Settings& settings,
                                          const SavingOptions& options = {});

}  // namespace headroom::plan
