// `--policy`: a rule of thumb decides the batch, the variant of a model or how it is trained, in
// place of what was said, and tells what and why.
#pragma once

#include <string>
#include <vector>

#include "headroom/base/json.h"
#include "headroom/formula/model_catalogue.h"
#include "headroom/formula/settings.h"
#include "headroom/gpu/simulated.h"

namespace headroom::cli {

struct Decided {
  std::string model;
  formula::Settings settings;
  std::string why;  // empty: nothing was decided
};

// `model` is a name, or with Policy::variant a list "llama-2-13b@40GiB,llama-2-7b": from which card
// on which. `gpus` are the cards of one machine, the smallest decides. Throws UsageError for a
// policy that needs a card where there is none, or that decides that nothing fits.
[[nodiscard]] Decided decide(const std::string& model, const formula::Settings& settings,
                             const std::vector<gpu::SimulatedCard>& gpus);

}  // namespace headroom::cli
