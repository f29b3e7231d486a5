// What `headroom trace replay` found out, and the two ways of saying it.
#pragma once

#include <string>
#include <vector>

#include "headroom/base/json.h"
#include "headroom/cli/core/commands/trace.h"
#include "headroom/trace/what_if.h"

namespace headroom::cli {

struct ReplayAnswer {
  TraceFile file;  // as it was asked for
  CardChoice card;
  trace::About about;
  trace::Noticed noticed;
  std::vector<trace::CardReplay> cards;           // the first is what the others are compared with
  std::vector<trace::SmallestCapacity> smallest;  // of each, if wanted

  [[nodiscard]] bool is_comparison() const { return cards.size() > 1; }
  [[nodiscard]] const trace::CardReplay& winner() const { return cards[trace::best(cards)]; }
};

[[nodiscard]] Json replay_document(const ReplayAnswer& answer);
// For a person; ends with the one next command, if there is one.
[[nodiscard]] std::string replay_text(const ReplayAnswer& answer, const Terminal& terminal);

}  // namespace headroom::cli
