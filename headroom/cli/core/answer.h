// The answer of `headroom estimate`, by dry run or by formula. Its JSON (docs/reference/json.md)
// and its picture (view/estimate_view.h) are both made from it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "headroom/base/json.h"
#include "headroom/cli/core/exit_code.h"
#include "headroom/gpu/simulated.h"
#include "headroom/model/model_catalogue.h"
#include "headroom/model/run_settings.h"
#include "headroom/plan/policies.h"
#include "headroom/plan/savings.h"
#include "headroom/trace/report.h"

namespace headroom::cli {

// The run on one card.
struct CardAnswer {
  gpu::SimulatedCard card;
  trace::Peak peak;
  bool fits = false;
  Bytes spare;                   // negative: missing
  bool until_it_failed = false;  // of a script: the figures are those of what it did before

  bool operator==(const CardAnswer&) const = default;
};

struct Answer {
  bool by_formula = false;
  std::string model;
  std::vector<std::string> defaulted;  // keys that the model's file omits
  long long parameters = 0, trainable_parameters = 0;
  model::Settings settings;       // with task and sizes filled in
  trace::Report report;           // on the card with the least memory left
  std::vector<CardAnswer> cards;  // in the order of --gpus; empty: no limit
  Bytes on_host, on_disk;         // by formula only: offloaded bytes
  std::vector<std::string> notes;
  std::vector<plan::Saving> advice;
  std::optional<std::vector<plan::Saving>> techniques = {};  // nothing: not requested
  std::optional<plan::QuickEstimate> rule = {};              // --quick: the rule of thumb

  // The card with the least memory left; null without cards.
  [[nodiscard]] const CardAnswer* tightest() const;
  [[nodiscard]] bool does_not_fit() const { return tightest() != nullptr && !tightest()->fits; }
};

[[nodiscard]] Json to_json(const Answer& answer);
// The list of `advice`, also of `headroom fit`. `limited`: there is a card to fit into. `dry_run`:
// the changes that can run were run.
[[nodiscard]] Json to_json(const std::vector<plan::Saving>& changes, bool limited, bool dry_run);

// Prints the answer, and gives the command's exit code.
[[nodiscard]] ExitCode print_answer(const Answer& answer, bool as_json);

}  // namespace headroom::cli
