// A machine as the JSON document of `headroom gpus --json` (docs/reference/json.md). The log writes
// the same document for every sample.
#pragma once

#include "headroom/base/json.h"
#include "headroom/gpu/machine.h"

namespace headroom::watch {

// Sentences that the document carries besides the machine's figures.
struct GpusNotes {
  std::vector<std::string> warnings, advice;
};

// Unknown values are null. `usable_bytes` is the figure that decisions use; it is null for a card
// whose data is too old.
[[nodiscard]] Json gpus_document(const gpu::Machine& machine, const GpusNotes& notes,
                                 Clock::time_point now = Clock::now());

// Problems with the data itself: cards that do not answer, cards in trouble, no driver.
[[nodiscard]] std::vector<std::string> data_warnings(const gpu::Machine& machine,
                                                     Clock::time_point now = Clock::now());
// Whether a warning only reports that a card's data is old. A screen that marks such cards leaves
// it out.
[[nodiscard]] bool tells_age(std::string_view warning);

}  // namespace headroom::watch
