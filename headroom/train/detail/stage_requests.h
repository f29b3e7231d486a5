// A rank's part of a step as a dry run, alone: what it asks of its card's allocator.
#pragma once

#include <optional>
#include <vector>

#include "headroom/dryrun/step_run.h"
#include "headroom/gpu/simulated.h"
#include "headroom/train/detail/transaction.h"

namespace headroom::train::detail {

// Moves the rank's tensors, without their values, to a card made for it, and attempts a step there.
// `given`: what the stage before gives for each part of the batch. `with_marks`: where passes begin
// (pass_requests.h).
[[nodiscard]] dryrun::Requests requests_alone(Transaction& rank, const gpu::SimulatedCard& card,
                                              const Tensors& batch, const Plan& plan,
                                              const std::optional<std::vector<Tensors>>& given,
                                              const dryrun::CardOptions& options,
                                              bool with_marks = false);

// The requests of two steps, from those of one after its mark. The second begins with the cache
// that the first left in the allocator; it does not make lasting tensors again.
[[nodiscard]] dryrun::Requests with_another_step(dryrun::Requests requests);

}  // namespace headroom::train::detail
