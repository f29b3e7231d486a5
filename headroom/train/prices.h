// What a step needs of a card's memory under each plan. Known before the first step: dry runs of a
// few plans and micro-batches give the requests to the allocator (estimate/step_run.h), and those
// predict all other micro-batches. A real process cannot predict any more once it has run backward,
// so a run keeps them.
//
//   prices.needed(plan, {.rows = 32});                   // bytes of a card, or nothing: not known
//   prices.largest(plan, 4, 32, {.rows = 32}, 22_GiB);   // rows of a micro-batch
//
// A batch of another shape, such as longer texts, is taken as more rows of the priced shape.
//
// A price is of the tensors of this process; the CUDA context and other processes come on top.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "headroom/allocator/settings.h"
#include "headroom/base/bytes.h"
#include "headroom/estimate/request_predictor.h"
#include "headroom/train/plan.h"

namespace headroom::train {

// A batch, as far as its memory is concerned.
struct Work {
  std::int64_t rows = 0;
  double scale = 1;  // elements of a row, relative to those of the priced batch
};

// A dry run of a step.
struct PricedRun {
  Plan plan;
  std::int64_t rows = 0;  // of the batch
  estimate::Requests requests;
};

class Prices {
 public:
  // `settings`: of the allocator, where a plan has none of its own.
  explicit Prices(const allocator::Settings& settings) : settings_(settings) {}

  void learn(PricedRun run);
  [[nodiscard]] bool empty() const { return levels_.empty(); }

  // The smallest card on which the step runs. Nothing: this form of a step was not priced.
  [[nodiscard]] std::optional<Bytes> needed(const Plan& plan, const Work& work) const;
  // Whether a card of this size serves the step.
  [[nodiscard]] std::optional<bool> is_served(const Plan& plan, const Work& work, Bytes card) const;
  // The largest micro-batch from `least` to `most` that such a card serves, the plan otherwise as
  // it is. Nothing: none, or not known.
  [[nodiscard]] std::optional<std::int64_t> largest(const Plan& plan, std::int64_t least,
                                                    std::int64_t most, const Work& work,
                                                    Bytes card) const;

 private:
  using Form = std::tuple<bool, bool, bool>;  // checkpointing, fused loss, offload
  // A step whose batch runs at once, and a step in parts, which holds gradients during the second
  // forward pass.
  struct Level {
    estimate::RequestPredictor whole{{}}, parts{{}};
    std::int64_t whole_rows = 0;
    // By the allocator's settings, whether it runs at once, and the size.
    mutable std::map<std::tuple<std::string, bool, std::int64_t>, Bytes> needed;
  };
  struct Place {
    const Level* level = nullptr;
    bool whole = false;
    std::int64_t size = 0;
    [[nodiscard]] const estimate::RequestPredictor& predictor() const {
      return whole ? level->whole : level->parts;
    }
  };

  [[nodiscard]] static Form form_of(const Plan& plan);
  [[nodiscard]] std::optional<Place> place_of(const Plan& plan, std::int64_t part,
                                              const Work& work) const;
  [[nodiscard]] allocator::CachingAllocator card_of(const Plan& plan, Bytes capacity) const;

  allocator::Settings settings_;
  std::map<Form, Level> levels_;
};

}  // namespace headroom::train
