// How small a card a script can have if what is needed later waits on the host (memory/spill.h),
// and what moves then: by rehearsals on smaller and smaller cards.
#pragma once

#include <optional>
#include <vector>

#include "headroom/rehearse/rehearsal.h"

namespace headroom::rehearse {

// The script on cards on which its processes can have this much together.
struct OnLess {
  Bytes process;
  bool ends = false;         // false: memory ran out
  Bytes waiting;             // on the host at once, at most, of one process
  std::int64_t refused = 0;  // requests in its last step, all of them served
  Bytes moved;               // of one process to the host in its last step, and back
  double seconds = 0;        // that this takes over the card's link, at most
};

struct Floor {
  Bytes needs;                 // with nothing on the host
  std::vector<OnLess> tried;   // the largest first
  std::optional<OnLess> here;  // on the card itself, if that is smaller than what is needed

  // The least on which it ended; std::nullopt if it needs all.
  [[nodiscard]] std::optional<OnLess> least() const;
};

// `needs`: of the process on the tightest card. Throws UnavailableError if the script fails for
// another reason than memory.
[[nodiscard]] Floor find_floor(const Orders& orders, Bytes needs);

[[nodiscard]] Json to_json(const Floor& floor);

}  // namespace headroom::rehearse
