// Where a run's batches come from: any loader, as three functions.
//
//   const Batches batches{.next = [&] { return loader.next().tensors; },
//                         .per_epoch = loader.batches_per_epoch(),
//                         .position = [&] { return to_string(loader.position()); },
//                         .go_to = [&](const std::string& place) { loader.set_position(...); }};
//
// Batches follow one another without an end; after the last one of an epoch comes the first one of
// the next.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "headroom/train/objective.h"

namespace headroom::train {

struct Batches {
  std::function<Tensors()> next;
  std::int64_t per_epoch = 0;
  // The place after the last batch that next() gave, and the way back to such a place. A run
  // without them starts its data from the beginning when it is resumed.
  std::function<std::string()> position = {};
  std::function<void(const std::string&)> go_to = {};
};

}  // namespace headroom::train
