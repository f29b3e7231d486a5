// The result of `headroom trace replay`, as JSON and as text.
#pragma once

#include <string>
#include <vector>

#include "headroom/base/json.h"
#include "headroom/cli/core/commands/trace.h"
#include "headroom/trace/what_if.h"

namespace headroom::cli {

struct ReplayAnswer {
  TraceFile file;  // as given
  CardChoice card;
  trace::About about;
  trace::Noticed noticed;
  std::vector<trace::CardReplay> cards;           // the first is the baseline of the comparison
  std::vector<trace::SmallestCapacity> smallest;  // one for each card, if requested

  [[nodiscard]] bool is_comparison() const { return cards.size() > 1; }
  [[nodiscard]] const trace::CardReplay& winner() const { return cards[trace::best(cards)]; }
};

[[nodiscard]] Json replay_document(const ReplayAnswer& answer);
// Text for people; ends with one next command, if there is one.
[[nodiscard]] std::string replay_text(const ReplayAnswer& answer, const Terminal& terminal);

}  // namespace headroom::cli
