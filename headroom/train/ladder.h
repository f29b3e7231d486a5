// Which plan to try after an out-of-memory: the cheapest that may help, one rung after another.
// rungs/ has a file for each.
//
//   same_again    the same plan, once: a neighbour may have had a short peak. Not if the step is
//                 known to need more than the card has for it now.
//   allocator     settings against fragmentation, if the card has the memory in pieces
//   micro_batch   a smaller one, the largest that fits; half of it where prices are not known
//   technique     checkpointing, then the fused loss, then offload of activations, with the largest
//                 micro-batch that fits then. Offload needs a host with room for them.
//   device        another card with room, then the CPU, of those that are allowed
//
// A plan that failed for a step is not tried again for it. Running the same plan again is free; of
// other plans a step has `max_retries`, and the last one is the heaviest that is allowed. If even
// that fails although the card is known to have enough for it, it runs again, three times.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "headroom/base/host_memory.h"
#include "headroom/train/event.h"
#include "headroom/train/plan.h"
#include "headroom/train/prices.h"

namespace headroom::train {

// Memory that a plan is to leave free of a card: the larger of the two.
struct Room {
  Bytes least{std::int64_t{512} << 20};
  double share = 0.05;
  [[nodiscard]] Bytes of(Bytes card) const;
};

// Another device that a step may move to.
struct Elsewhere {
  std::string device;         // "cuda:1", "cpu"
  std::optional<Bytes> free;  // nothing: not known
};

struct LadderOptions {
  std::int64_t min_micro_batch = 1;  // the ladder goes on past it with techniques
  int max_retries = 3;               // of one step, with another plan
  Room room = {};                    // that a chosen plan leaves
  // Techniques, in the order in which they are added. The step knows which the model has.
  bool checkpointing = true, fused_loss = true, offload = true;
  bool allocator = true;  // may change the allocator's settings
  // Asked before offload: what the host has for it. Nothing: not known.
  std::function<std::optional<Bytes>()> host_memory = host_memory_to_use;
  // Asked when nothing else is left: the devices that may be used, the preferred ones first.
  std::function<std::vector<Elsewhere>()> elsewhere = {};
};

// An attempt that ran out of memory.
struct Failure {
  Plan plan;
  Work work;
  std::optional<Bytes> asked, free, cached;  // at the failure
  std::optional<Bytes> card;  // what this process could have now: reserved by it, and free
};

class Ladder {
 public:
  // Prices may be null, and must outlive the ladder.
  explicit Ladder(const LadderOptions& options, const Prices* prices = nullptr);

  struct Move {
    Event::Kind kind = Event::Kind::retry;
    Plan plan;
  };
  // Nothing: no plan is left.
  [[nodiscard]] std::optional<Move> next(const Failure& failure);
  // Forgets what was tried: call it before each step.
  void begin_step();

  // The fastest plan that a card of this size serves: `wish`, or it with a smaller micro-batch, or
  // with techniques. Nothing: none, or prices are not known.
  [[nodiscard]] std::optional<Plan> fastest(const Plan& wish, const Work& work, Bytes card) const;

  void set_prices(const Prices* prices) { prices_ = prices; }
  [[nodiscard]] const LadderOptions& options() const { return options_; }

 private:
  [[nodiscard]] std::optional<Move> next_plan(const Failure& failure);
  [[nodiscard]] bool was_tried(const Plan& plan) const;
  [[nodiscard]] std::optional<Move> cheapest(const Failure& failure) const;
  [[nodiscard]] std::optional<Move> heaviest(const Failure& failure) const;

  LadderOptions options_;
  const Prices* prices_;
  std::vector<Plan> tried_;  // in this step, in order
  int changes_ = 0;          // of the plan, in this step
  int last_tries_ = 0;       // of the last plan, although it has failed
};

}  // namespace headroom::train
