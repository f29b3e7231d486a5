// The answer to "will it fit?": by dry run, by formula, or by a rehearsal of a script.
//
//   const Answer answer = by_formula(model::model_named("gpt2"), settings, cards);
//   if (answer.does_not_fit()) say(to_json(answer));
//
// Its document (docs/reference/json.md) is made here, regardless of which program found the
// figures: the command, its engine or a Python program.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/base/json.h"
#include "headroom/gpu/simulated.h"
#include "headroom/model/run_settings.h"
#include "headroom/plan/policies.h"
#include "headroom/plan/savings.h"
#include "headroom/trace/report.h"

namespace headroom::answer {

enum class Method { dry_run, formula, rehearsal };
[[nodiscard]] std::string_view to_string(Method method);

// The run on one card.
struct OnCard {
  gpu::SimulatedCard card;
  trace::Peak peak;
  bool fits = false;
  Bytes spare;                   // negative: the shortfall
  bool until_it_failed = false;  // of a script: the figures cover only the part before that

  bool operator==(const OnCard&) const = default;
};

struct Answer {
  Method method = Method::dry_run;
  std::string model;                   // its name, or the user's function or command
  std::vector<std::string> defaulted;  // keys that the model's file omits
  long long parameters = 0, trainable_parameters = 0;
  // With task and sizes filled in. std::nullopt for a user's program, which has its own.
  std::optional<model::Settings> settings = {};
  trace::Report report;       // on the card with the least memory left
  std::vector<OnCard> cards;  // in the order of --gpus; an empty list means no limit
  Bytes on_host, on_disk;     // by formula only: offloaded bytes
  std::vector<std::string> notes;
  std::vector<plan::Saving> advice;
  std::optional<std::vector<plan::Saving>> techniques = {};  // std::nullopt: not requested
  std::optional<plan::QuickEstimate> rule = {};              // --quick: bytes per parameter

  // The card with the least memory left; null without cards.
  [[nodiscard]] const OnCard* tightest() const;
  [[nodiscard]] bool does_not_fit() const { return tightest() != nullptr && !tightest()->fits; }
};

[[nodiscard]] Json to_json(const Answer& answer);
// The same without notes, advice and other cards: the model, the card, its figures, and whether
// they fit.
[[nodiscard]] Json figures_to_json(const Answer& answer);
// The list of `advice`, also of `headroom fit`. `limited`: there is a card to fit into. `dry_run`:
// the changes that can run were run.
[[nodiscard]] Json to_json(const std::vector<plan::Saving>& changes, bool limited, bool dry_run);
// {"name":...,"total_bytes":...,"usable_bytes":...}
[[nodiscard]] Json to_json(const gpu::SimulatedCard& card);

}  // namespace headroom::answer
