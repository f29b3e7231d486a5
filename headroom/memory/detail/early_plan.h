// Which storages leave a card early, beside the computation, so that a step like the last ones
// meets no refusal: as many bytes as are missing, and a little more.
//
// A step is a list of places: storages in the order in which autograd saves them, with their sizes.
// A batch of another shape has other places, and what was learned for one does not move the other.
#pragma once

#include <c10/core/Device.h>

#include <compare>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "headroom/base/bytes.h"

namespace headroom::memory::detail {

struct ByDevice {
  bool operator()(c10::Device a, c10::Device b) const {
    return std::pair(a.type(), a.index()) < std::pair(b.type(), b.index());
  }
};

class EarlyPlan {
 public:
  struct Place {
    std::int64_t number = 0;
    Bytes size;
    auto operator<=>(const Place&) const = default;
  };

  // ---- Within a step ----

  // A storage is saved; true if it leaves now.
  [[nodiscard]] bool leaves(const Place& place);
  // Allocated and waiting at one moment.
  void needs(Bytes bytes) { needed_ = std::max(needed_, bytes); }
  void was_refused(Bytes requested) { refused_ = std::max(refused_, requested); }
  // Only these can leave: somebody else holds the others.
  void may_leave(const Place& place) { movable_.insert(place); }

  // ---- Between two steps ----

  // How much has to leave of a card of this capacity; std::nullopt: as before.
  [[nodiscard]] std::optional<Bytes> end_step(Bytes capacity);
  // From now on so many bytes of saved storages do: the first ones, which are needed last.
  void leave_early(Bytes enough);

 private:
  std::set<Place> early_, movable_;
  std::vector<Place> saved_;   // by the last forward pass
  Bytes needed_, refused_;     // in this step
  Bytes planned_for_, spare_;  // what the plan's step needs, and how much more leaves
  bool has_plan_ = false;
};

}  // namespace headroom::memory::detail
