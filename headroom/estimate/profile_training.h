// Profiles a model's training step on a simulated card, without data: the counterpart of
// estimate_memory() that shows which operators and modules allocate.
//
//   const TrainingProfile found = profile_training(gpt2, settings, dryrun::card_for("RTX 4090"));
//   say(profile::table(found.profile, {.group_by = profile::GroupBy::module}));
#pragma once

#include "headroom/dryrun/dry_run.h"
#include "headroom/estimate/estimate.h"
#include "headroom/profile/profile.h"

namespace headroom::estimate {

struct TrainingProfile {
  profile::Profile profile;  // of the steps, without making the model
  model::Settings settings;  // as passed, with task, seq and image filled in
  long long parameters = 0, trainable_parameters = 0;
  bool fits = true;  // else the profile is of a card without a limit
};

// Makes a subject on a card of its own and profiles its steps. If the card is too small, profiles
// them on a card without a limit, at the same card's rates.
[[nodiscard]] TrainingProfile profile_steps(const gpu::SimulatedCard& card,
                                            const std::function<dryrun::Subject(c10::Device)>& make,
                                            int steps, const dryrun::CardOptions& options = {});

// Runs in this process. Throws as estimate_memory(), and UnavailableError in a process that has
// used CUDA.
[[nodiscard]] TrainingProfile profile_training(const model::NamedModel& model,
                                               const model::Settings& settings,
                                               const gpu::SimulatedCard& card,
                                               const Options& options = {});

}  // namespace headroom::estimate
