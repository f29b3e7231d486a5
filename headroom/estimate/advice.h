// What would make a run fit, or smaller: the three cheapest changes of its settings, each run dry.
//
//   for (const Advice& one : advise(model, estimate, card_options))
//     say(one.change, to_string(one.saves), one.time_factor);
#pragma once

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
  Bytes saves;             // of what is allocated at the peak, by dry run
  Bytes reserved;          // at the peak then
  double time_factor = 1;  // by the cost model of formula/techniques.h
  bool changes_training = false;
  std::optional<bool> fits;  // nothing: there is no limit to fit into
};

// Chosen by the closed form from all changes that can run; those that turn out to save nothing for
// this model are left out. Throws what estimate_memory throws.
[[nodiscard]] std::vector<Advice> advise(const formula::NamedModel& model, const Estimate& now,
                                         const Options& options = {}, std::size_t wanted = 3);

[[nodiscard]] Json to_json(const std::vector<Advice>& advice);

}  // namespace headroom::estimate
