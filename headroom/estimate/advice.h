// What would make a run fit, or smaller: the three cheapest changes of its settings, each run dry;
// where none of these fits, also what is enough by formula, though Headroom cannot run it yet.
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
#include "headroom/formula/model_catalogue.h"
#include "headroom/formula/settings.h"

namespace headroom::estimate {

struct Advice {
  std::string change;  // as on the command line: "--checkpointing full --dtype bfloat16"
  formula::Settings settings;
  Bytes saves;             // of what is allocated at the peak
  Bytes saves_process;     // of the process, the measure of whether it fits
  Bytes reserved;          // at the peak then
  Bytes process;           // and the CUDA context
  double time_factor = 1;  // by formula/step_time.h
  bool changes_training = false;
  std::optional<bool> fits;  // nothing: there is no limit to fit into
  bool by_formula = false;   // instead of by dry run, because it cannot be run
};

struct AdviceOptions {
  std::size_t wanted = 3;
  // What may be changed; nothing: all.
  std::function<bool(const formula::Settings&)> allows = {};
};

// Chosen by the closed form from all changes that can run; those that turn out to save nothing for
// this model are left out. Throws what estimate_memory throws.
[[nodiscard]] std::vector<Advice> advise(const formula::NamedModel& model, const Estimate& now,
                                         const Options& options = {},
                                         const AdviceOptions& wanted = {});

[[nodiscard]] Json to_json(const std::vector<Advice>& advice);

}  // namespace headroom::estimate
