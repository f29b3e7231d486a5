// Finds the cheapest changes of a run's settings, alone or together, that make it fit.
//
//   for (const Saving& advice : cheapest_help(config, settings, {.card = card, .room = room}))
//     say(advice.option);   // "--checkpointing full", "--checkpointing full --dtype bfloat16", ...
//
// Uses the closed form, so it takes milliseconds; estimate/advice.h adds dry runs.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "headroom/plan/savings.h"

namespace headroom::plan {

// Returns at most `wanted` techniques, best first: those that leave the training unchanged before
// those that change it, then fewer changes before more, then the faster first; a shorter sequence
// comes last. Combines two changes while fewer than `wanted` of those that leave the training
// unchanged are enough, and up to four while fewer than `wanted` of any kind are. If still fewer
// are, the ones that need the least memory follow. Only techniques that can run and save at least
// 1 % of the peak. No result contains another that is enough.
[[nodiscard]] std::vector<Saving> cheapest_help(const model::ModelConfig& config,
                                                const model::Settings& settings,
                                                const SavingOptions& options,
                                                std::size_t wanted = 3);

// Returns techniques that would be enough but that Headroom cannot run yet, for runs that nothing
// else makes fit: the fastest that leaves the training unchanged and the fastest that changes it,
// each without needless changes; the faster of the two first. Empty if nothing is enough.
[[nodiscard]] std::vector<Saving> enough_but_cannot_run(const model::ModelConfig& config,
                                                        const model::Settings& settings,
                                                        const SavingOptions& options);

// Joins two lists of options; a later value replaces an earlier one of the same option:
// "--checkpointing every:2" and "--checkpointing full --loss chunked:1024" give the latter.
[[nodiscard]] std::string joined_options(const std::string& first, const std::string& then);

}  // namespace headroom::plan
