// Chooses the plan to try after an out-of-memory: the cheapest that may help, one rung after
// another. rungs/ has a file for each.
//
//   same_again    the same plan, once: a neighbour may have had a short peak. Not if the step is
//                 known to need more than the card has for it now.
//   allocator     settings against fragmentation, if the card has the memory in pieces
//   micro_batch   a smaller one, the largest that fits; half of it where prices are not known
//   technique     checkpointing, then the fused loss, then offload of activations (the rungs of
//                 plan/technique.h), with the largest micro-batch that fits then. Offload needs
//                 room on the host.
//   lasting       frozen weights in 8 bit, then in 4, where the objective offers it: from then on
//                 the result is another one. Not a retry of those that `max_retries` counts,
//                 nor is a device that comes after it
//   device        another card with room, then the CPU, of those that are allowed
//
// Where prices are known, the first plan that leaves `room` of the card is taken; if none does, the
// first that fits at all. What lasts is taken only if nothing before it fits at all.
//
// A plan that failed for a step is not tried again for it. Running the same plan again is free; of
// other plans a step has `max_retries`, and the last one is the heaviest that is allowed. If even
// that fails although the card is known to have enough for it, it runs again, three times.
//
// A plan may give a layer too few rows, as batch norm over single values needs two. Dry runs find
// that before the first step. Without prices such an attempt fails, and larger_than() names the
// plans to try then; they do not count as retries.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "headroom/base/host_memory.h"
#include "headroom/plan/policies.h"
#include "headroom/plan/technique.h"
#include "headroom/train/event.h"
#include "headroom/train/plan.h"
#include "headroom/train/prices.h"

namespace headroom::train {

using plan::Room;

// Another device that a step may move to.
struct Elsewhere {
  std::string device;         // "cuda:1", "cpu"
  std::optional<Bytes> free;  // std::nullopt if not known
};

struct LadderOptions {
  std::int64_t min_micro_batch = 1;  // the ladder goes on past it with techniques
  std::int64_t fewest_rows = 1;      // of any part of a batch; the step learns it by itself
  int max_retries = 3;               // of one step, with another plan
  Room room = {};                    // that a chosen plan leaves
  // The techniques that it may add, by name. The step knows which the model has.
  std::set<std::string> techniques = plan::rung_names();
  bool allocator = true;  // may change the allocator's settings
  // Called before offload: the host memory that is free for it. std::nullopt if not known.
  std::function<std::optional<Bytes>()> host_memory = host_memory_to_use;
  // Asked when nothing else is left: the devices that may be used, the preferred ones first.
  std::function<std::vector<Elsewhere>()> elsewhere = {};
};

// A plan and the memory that it needs on a card, the one that needs most.
struct PricedPlan {
  Plan plan;
  Bytes needed;
};

// An attempt that ran out of memory.
struct Failure {
  Plan plan;
  Work work;
  std::optional<Bytes> asked, free, cached;  // at the failure
  std::optional<PerStage> card;  // memory for this process now: reserved by it, and free
  // Why a smaller plan of the same step failed, if not for memory. "" if none did.
  std::string otherwise = {};
  std::size_t rank = 0, stage = 0;  // where it failed
};

class Ladder {
 public:
  // Prices may be null, and must outlive the ladder.
  explicit Ladder(const LadderOptions& options, const Prices* prices = nullptr);

  struct Move {
    Event::Kind kind = Event::Kind::retry;
    Plan plan;
  };
  // std::nullopt if no plan is left.
  [[nodiscard]] std::optional<Move> next(const Failure& failure);
  // After an attempt that failed otherwise than of memory: the plan with about twice the rows in a
  // part. std::nullopt if it has failed, too, or if there is none.
  [[nodiscard]] std::optional<Move> larger_than(const Plan& failed, const Work& work);
  // Forgets the tried plans: call it before each step.
  void begin_step();

  // The fastest plan that leaves `room` of cards of this size; if there is none, the fastest that
  // fits. It is `wish`, or it with a smaller micro-batch, or with techniques. std::nullopt if none
  // fits, or prices are not known.
  [[nodiscard]] std::optional<Plan> fastest(const Plan& wish, const Work& work,
                                            const PerStage& cards) const;
  // The plan that needs the least memory of all that are allowed, on the card that needs most.
  // std::nullopt if prices are not known.
  [[nodiscard]] std::optional<PricedPlan> least(const Plan& wish, const Work& work) const;
  // An allowed micro-batch of at most this many rows, and the largest; if there is none, the least
  // that is allowed.
  [[nodiscard]] std::int64_t micro_batch_of(std::int64_t most, const Work& work) const;

  void set_prices(const Prices* prices);
  // A part of fewer rows has failed.
  void set_fewest_rows(std::int64_t rows);
  [[nodiscard]] const LadderOptions& options() const { return options_; }

 private:
  [[nodiscard]] std::optional<Move> next_plan(const Failure& failure);
  [[nodiscard]] std::optional<Plan> fastest_on(const Plan& wish, const Work& work,
                                               const PerStage& cards) const;
  [[nodiscard]] bool was_tried(const Plan& plan) const;
  [[nodiscard]] std::optional<Move> cheapest(const Failure& failure) const;
  [[nodiscard]] std::optional<Move> heaviest(const Failure& failure) const;
  [[nodiscard]] std::optional<Move> last_resort(const Failure& failure) const;
  [[nodiscard]] bool offers_what_lasts() const;

  LadderOptions options_;
  const Prices* prices_ = nullptr;
  std::vector<Plan> tried_;  // in this step, in order
  int changes_ = 0;          // of the plan, in this step
  int last_tries_ = 0;       // of the last plan, although it has failed
};

}  // namespace headroom::train
