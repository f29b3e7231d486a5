// What waited on the host in a run, and whether another plan would have been cheaper.
#pragma once

#include <string>
#include <vector>

#include "headroom/base/json.h"
#include "headroom/cli/engine/train/plan_answer.h"

namespace headroom::cli {

// Null if nothing may wait.
[[nodiscard]] Json spill_document(const train::Step& step);

// "spill: 2 requests were refused, ...; in the last step 1.2 GiB moved, which takes about 90.0 ms
// with the times of H100; cheaper: micro_batch=12 needs no moves and takes about 10.0 ms more".
// `cards`: the rates of each rank's card.
[[nodiscard]] std::string spill_words(const train::Step& step, std::int64_t rows,
                                      const config::Training& training,
                                      const model::ModelConfig& config,
                                      const std::vector<const gpu::CatalogueCard*>& cards);

}  // namespace headroom::cli
