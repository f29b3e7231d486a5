// The step that follows a try, as a value: the ladder after an out-of-memory.
//
//   const NextStep step = next_step(tries, orders, knobs, place.room());
//   if (step.kind == NextStep::Kind::try_again) run_again_with(*step.batch);
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "headroom/edit/knobs.h"
#include "headroom/supervise/orders.h"
#include "headroom/supervise/try.h"

namespace headroom::supervise {

struct NextStep {
  enum class Kind {
    done,       // the command's own end is the answer
    try_again,  // in the same place, with `batch` and `accumulation`
    find_room,  // no smaller batch: the same again where each card has `room`
    give_up,    // out of memory, and nothing is left to change
  };
  Kind kind = Kind::done;
  std::string why;                                   // "" where the end needs no explanation
  std::optional<long long> batch{}, accumulation{};  // accumulation: only where it is mapped
  Bytes room{};
};

// `room`: the memory that the last try's place had on its tightest card; std::nullopt if there is
// no other place to look for (on the CPU, inside another `run`).
[[nodiscard]] NextStep next_step(const std::vector<Try>& tries, const Orders& orders,
                                 const edit::Knobs& knobs, std::optional<Bytes> room);

// Why a mapped batch must not change under these orders; "" if it may.
[[nodiscard]] std::string why_batch_stays(const Orders& orders, const edit::Knobs& knobs);

}  // namespace headroom::supervise
