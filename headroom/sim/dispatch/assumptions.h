// Values that a shape-only card assumes (Card::assume_true) where the shape of a result depends on
// unknown ones, so that a program goes on: a share of a mask is true, places that topk and its kin
// found are spread evenly. An assumed value is known from then on (device/known.h): all sizes that
// come from one mask agree. Each assumption is counted and reported to the observer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "headroom/sim/dispatch/call.h"
#include "headroom/sim/dispatch/plan.h"

namespace headroom::sim::detail {

// Gives values to the unknown arguments on which the shapes of the results depend. False: the card
// assumes nothing, or they cannot be given.
[[nodiscard]] bool assume_arguments(const Call& call);

// Plans a call whose masks cannot be given values, because they are too large, or have a type of
// which a card keeps none: their share counts as true. A plan that was not made: it has no such
// mask.
[[nodiscard]] Plan plan_by_share(Call& call);

// For an operator of an extension whose results only its kernel knows (torchvision::nms): makes
// them. False: not one of these.
[[nodiscard]] bool assume_results(Call& call);

// Where an operator finds places in values: topk, argsort, argmax, multinomial.
struct Places {
  std::size_t result = 0;  // that has them
  std::int64_t dim = -1;   // along which it looks
  std::int64_t among = 0;  // this many places
  bool is_order = false;   // all of them, in an order
};
// Before the call's results are made. std::nullopt if there are none, or the card assumes nothing.
[[nodiscard]] std::optional<Places> places_found(const Call& call);
// After: places in unknown values are spread evenly.
void assume_places(const Call& call, const Places& places);

}  // namespace headroom::sim::detail
