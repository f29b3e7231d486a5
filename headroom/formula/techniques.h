// Every change of a run's settings that saves memory, for this model: how much, at what price.
//
//   TechniqueOptions options{.card = gpu::find_card("RTX 4090")};
//   for (const Technique& technique : techniques(config, settings, options))
//     say(technique.option, to_string(technique.saves), technique.time_factor);
//
// Times are of step_time.h. A time factor is per token, so that 2 is half the speed.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "headroom/base/bytes.h"
#include "headroom/formula/closed_form.h"
#include "headroom/formula/model_config.h"
#include "headroom/formula/settings.h"
#include "headroom/gpu/catalogue.h"

namespace headroom::formula {

struct Technique {
  std::string name;    // "checkpointing, every layer"
  std::string option;  // as on the command line: "--checkpointing full"
  Settings settings;   // with the change
  Bytes needs;         // reserved at the peak
  Bytes process;       // and the CUDA context, where the card's is known
  Bytes saves;         // of what is allocated at the peak
  Bytes saves_process;
  double time_factor = 1;
  bool changes_training = false;  // the result is another one: LoRA, fewer bits, another rule
  bool fits = true;               // into the room, if there is one
  bool can_run = true;            // today, as the caller says
};

struct TechniqueOptions {
  const gpu::CatalogueCard* card = nullptr;  // null: an A100's times
  int gpus = 1;
  std::optional<Bytes> room = {};  // nothing: the card's, less its context and plannable()'s margin
  std::function<bool(const Settings&)> can_run = {};  // nothing: all can
  std::function<bool(const Settings&)> allows = {};   // nothing: all may be changed
};

// Those that save something and are not on yet, the best first: what is enough before what is not,
// what leaves the training as it is before what changes it, the cheapest before the dearest; a
// shorter sequence last.
[[nodiscard]] std::vector<Technique> techniques(const ModelConfig& config, const Settings& settings,
                                                const TechniqueOptions& options = {});

}  // namespace headroom::formula
