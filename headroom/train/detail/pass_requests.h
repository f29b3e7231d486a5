// The requests of a stage's step with any number of equal parts, from those of one with four.
// Passes of parts are alike: those of the first two parts, of the last one, and all between them.
//
//   const auto requests = in_more_parts(of_four, passes(..., 4), passes(..., 32));
#pragma once

#include <optional>
#include <vector>

#include "headroom/dryrun/step_run.h"
#include "headroom/plan/pipeline.h"

namespace headroom::train::detail {

// `of_four` has a mark (Kind::nothing) where each of the passes `four` begins, and where the last
// one ends. `more`: the passes of a step with four parts or more. std::nullopt if the passes are
// not alike, so that the step has to run.
[[nodiscard]] std::optional<dryrun::Requests> in_more_parts(const dryrun::Requests& of_four,
                                                            const std::vector<plan::Pass>& four,
                                                            const std::vector<plan::Pass>& more);

}  // namespace headroom::train::detail
