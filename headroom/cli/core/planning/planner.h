// Answers a plan question: searches over the ways to train, the lightest change first, until one
// fits.
//
//   const Planned planned = plan_for(question, make_dry_runs);
//   if (planned.best()) print(command_of(question, planned));
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "headroom/base/json.h"
#include "headroom/cli/core/planning/plan_question.h"
#include "headroom/gpu/catalogue.h"
#include "headroom/plan/model_pricer.h"
#include "headroom/plan/search.h"

namespace headroom::cli {

// For the stages of a training on these cards; none_can_be_made() where there is no LibTorch.
using MakeDryRuns = std::function<plan::PriceStage(const config::Training& training,
                                                   const std::vector<gpu::SimulatedCard>& cards)>;
// What an unknown price of a stage ends a search with, where nothing can make dry runs.
struct NotPriced final : std::exception {
  [[nodiscard]] const char* what() const noexcept override { return "a stage without a price"; }
};
[[nodiscard]] MakeDryRuns none_can_be_made();

struct RefusedWay {
  std::string words;
  std::string why;  // one sentence with figures
};

struct Planned {
  std::vector<RefusedWay> refused;                   // ways that do not fit
  TuneWay way;                                       // that fits; else the last one
  std::vector<std::vector<std::string>> techniques;  // keys of each, by Form::techniques
  std::vector<config::Training> trainings;           // likewise
  plan::Searched searched;                           // of the way
  Bytes on_host;                                     // activations that wait there, all together
  std::string why_not_on_host;                       // if that was too much
  std::optional<int> cards_needed;                   // where nothing fits
  std::vector<const gpu::CatalogueCard*> rates;      // of each card
  // The fastest plan, where a rule has decided.
  std::optional<double> seconds_without_rule;
  std::string way_without_rule;
  std::int64_t dry_runs = 0;

  [[nodiscard]] const plan::Placement* best() const { return searched.best(); }
};

// Throws UsageError and InputError for a question that no training answers.
void check(const PlanQuestion& question);
// The same, and what the dry runs throw.
[[nodiscard]] Planned plan_for(const PlanQuestion& question, const MakeDryRuns& make);

// Why so many replicas and stages do not fit: "GPU 0 needs 50.20 GiB for weights, gradients and
// optimizer states, and 21.95 GiB are allowed".
[[nodiscard]] std::string words_of(const plan::Refusal& refusal);
// The keys of `headroom train` that run a placement, and the whole command.
[[nodiscard]] std::vector<std::string> keys_of(const PlanQuestion& question, const Planned& planned,
                                               const plan::Placement& placement);
[[nodiscard]] std::string command_of(const PlanQuestion& question, const Planned& planned);

}  // namespace headroom::cli
