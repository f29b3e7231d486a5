// A machine as the JSON document of `headroom gpus --json` (docs/reference/json.md); the log writes
// the same document for every sample.
#pragma once

#include "headroom/base/json.h"
#include "headroom/gpu/card.h"

namespace headroom::watch {

// What comes with the machine and is not of it.
struct GpusNotes {
  std::vector<std::string> warnings, advice;
};

// Unknown is null. `usable` is what decisions use: nothing where data is too old.
[[nodiscard]] Json gpus_document(const gpu::Machine& machine, const GpusNotes& notes,
                                 Clock::time_point now = Clock::now());

// What is wrong with the data itself: cards that do not answer, cards with trouble, no driver.
[[nodiscard]] std::vector<std::string> data_warnings(const gpu::Machine& machine,
                                                     Clock::time_point now = Clock::now());

}  // namespace headroom::watch
