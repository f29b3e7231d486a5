// Where tries can run: PlaceSearch on a machine (place_search.h), a script in tests.
#pragma once

#include <optional>
#include <string>

#include "headroom/gpu/machine.h"
#include "headroom/supervise/place.h"
#include "headroom/supervise/run_report.h"

namespace headroom::supervise {

struct PlaceWish {
  Bytes need;            // on each card
  bool is_known = true;  // if not, the job gets all usable memory of the cards
  Seconds timeout{0};
};

struct PlaceAnswer {
  std::optional<Place> place;
  // Without a place:
  Outcome outcome = Outcome::busy;  // or no_cards, cancelled
  int exit_code = 0;                // if cancelled
  bool waiting_helps = true;        // false: no card has that much even when empty
  std::string sentence;
  Seconds waited{0};
};

class Places {
 public:
  virtual ~Places() = default;
  [[nodiscard]] virtual PlaceAnswer find(const PlaceWish& wish) = 0;
  // A try keeps the place of the last one, whose memory comes back in steps. Empty, or the exit
  // code of the signal that ended the wait.
  [[nodiscard]] virtual std::optional<int> wait_until_memory_is_back(const Place& place) = 0;
  // The cards that may be used, sampled again.
  [[nodiscard]] virtual gpu::Machine fresh() = 0;
  // Inside another `run` the place is that one's lease.
  [[nodiscard]] virtual bool is_inside_lease() const = 0;
};

}  // namespace headroom::supervise
