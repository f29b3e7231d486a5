// The results of a benchmark as text.
#pragma once

#include <string>

#include "headroom/base/json.h"
#include "headroom/cli/core/terminal.h"

namespace headroom::cli {

[[nodiscard]] std::string bench_table(const Json& results, const Terminal& terminal);

// ---- For the page, too ----

// "8 replicas", "2 replicas in 4 stages, all weights"
[[nodiscard]] std::string plan_words(const Json& model);
// "finished", "finished with a lighter plan", "does not fit: GPU 0 needs ..."
[[nodiscard]] std::string state_words(const Json& model);
// "in float32 a card of 31.36 GiB refuses 100.00 MiB while the model was made, in its 27th layer,
// with 24.6 MiB free"
[[nodiscard]] std::string one_card_words(const Json& one);
// "All steps are dry: ...", or "".
[[nodiscard]] std::string dry_words(const Json& results);
// The most of all cards; 0 without them.
[[nodiscard]] Bytes most_of(const Json& model, const char* figure);

}  // namespace headroom::cli
