// All changes of a run's settings that save memory for a model, with their savings and their price.
//
//   TechniqueOptions options{.card = gpu::find_card("RTX 4090")};
//   for (const Technique& technique : techniques(config, settings, options))
//     say(technique.option, to_string(technique.saves), technique.time_factor);
//
// Times come from step_time.h. A time factor is per token: 2 means half the speed.
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

namespace headroom::forecast {

struct Technique {
  std::string name;          // "checkpointing, every layer"
  std::string option;        // as on the command line: "--checkpointing full"
  model::Settings settings;  // with the change
  Bytes needs;               // reserved at the peak
  Bytes process;             // reserved, and the CUDA context where the card's is known
  Bytes saves;               // allocated bytes at the peak
  Bytes saves_process;
  double time_factor = 1;
  bool changes_training = false;  // another result: LoRA, fewer bits, another optimizer
  bool fits = true;               // into the room, if one is given
  bool can_run = true;            // by TechniqueOptions::can_run
};

struct TechniqueOptions {
  const gpu::CatalogueCard* card = nullptr;  // null: times of an A100
  int gpus = 1;
  std::optional<Bytes> room = {};  // nothing: the card's, less its context and plannable()'s margin
  std::function<bool(const model::Settings&)> can_run = {};  // nothing: everything can run
  std::function<bool(const model::Settings&)> allows = {};   // nothing: every change is allowed
};

// Returns the techniques that save memory and are not in use yet, best first: those that are enough
// before those that are not, those that leave the training unchanged before those that change it,
// the faster before the slower. A shorter sequence comes last.
[[nodiscard]] std::vector<Technique> techniques(const model::ModelConfig& config,
                                                const model::Settings& settings,
                                                const TechniqueOptions& options = {});

}  // namespace headroom::forecast
