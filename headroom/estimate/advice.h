// Suggests changes that make a run fit, or smaller: the three cheapest changes of its settings,
// each dry-run. If none of these fits, it adds techniques that are enough by formula but that
// Headroom cannot run yet.
//
//   for (const Advice& one : advise(model, estimate, card_options))
//     say(one.change, to_string(one.saves), one.time_factor);
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "headroom/base/bytes.h"
#include "headroom/base/json.h"
#include "headroom/estimate/estimate.h"
#include "headroom/model/model_catalogue.h"
#include "headroom/model/settings.h"

namespace headroom::estimate {

struct Advice {
  std::string change;  // as on the command line: "--checkpointing full --dtype bfloat16"
  model::Settings settings;
  Bytes saves;             // of the memory allocated at the peak
  Bytes saves_process;     // of the process, which decides whether it fits
  Bytes reserved;          // peak with this change
  Bytes process;           // reserved plus the CUDA context
  double time_factor = 1;  // by forecast/step_time.h
  bool changes_training = false;
  std::optional<bool> fits;  // nothing: the card has no limit
  bool by_formula = false;   // not dry-run, because Headroom cannot run it
};

struct AdviceOptions {
  std::size_t wanted = 3;
  // True for settings that may be tried; empty: all.
  std::function<bool(const model::Settings&)> allows = {};
};

// The closed form chooses from all changes that can run; changes that save nothing for this model
// are left out. Throws the exceptions of estimate_memory.
[[nodiscard]] std::vector<Advice> advise(const model::NamedModel& model, const Estimate& now,
                                         const Options& options = {},
                                         const AdviceOptions& wanted = {});

[[nodiscard]] Json to_json(const std::vector<Advice>& advice);

}  // namespace headroom::estimate
