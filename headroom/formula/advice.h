// What would help: of all changes of a run's settings, alone or together, the few that are enough
// and cost the least.
//
//   for (const Technique& advice : cheapest_help(config, settings, {.card = card, .room = room}))
//     say(advice.option);   // "--checkpointing full", "--checkpointing full --dtype bfloat16", ...
//
// By the closed form, so in milliseconds; estimate/advice.h runs them dry.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "headroom/formula/techniques.h"

namespace headroom::formula {

// At most `wanted`, the best first: what leaves the training as it is before what changes it, few
// changes before many, the cheapest first; a shorter sequence last. Where single changes are not
// enough, up to four together; where nothing is, what saves the most. Only what can run, and saves
// at least one percent of the peak. None contains another one that is enough.
[[nodiscard]] std::vector<Technique> cheapest_help(const ModelConfig& config,
                                                   const Settings& settings,
                                                   const TechniqueOptions& options,
                                                   std::size_t wanted = 3);

// What is enough though Headroom itself cannot run it yet, for runs that nothing else makes small
// enough: the quickest change that leaves the training as it is and the quickest that does not,
// without what is not needed; the quicker of both first. Empty: nothing is enough.
[[nodiscard]] std::vector<Technique> enough_but_cannot_run(const ModelConfig& config,
                                                           const Settings& settings,
                                                           const TechniqueOptions& options);

// "--checkpointing every:2" and "--checkpointing full --loss chunked:1024": the later one of the
// same option holds.
[[nodiscard]] std::string joined_options(const std::string& first, const std::string& then);

}  // namespace headroom::formula
