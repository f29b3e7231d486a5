// The memory of a card that a step needs under each plan. Known before the first step: dry runs of
// a few plans and micro-batches give the requests to the allocator (dryrun/step_run.h), and those
// predict all other micro-batches. A real process cannot predict any more once it has run backward,
// so a run keeps them.
//
//   prices.needed(plan, {.rows = 32});             // bytes of a card; std::nullopt if not known
//   prices.is_served(plan, {.rows = 32}, 22_GiB);  // needed() is no more than that
//
// A batch of another shape, such as longer texts, is taken as more rows of the priced shape.
//
// A price is of the tensors of this process; the CUDA context and other processes come on top.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "headroom/allocator/settings.h"
#include "headroom/base/bytes.h"
#include "headroom/dryrun/request_predictor.h"
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
  dryrun::Requests requests;
};

class Prices {
 public:
  // `settings`: of the allocator, where a plan has none of its own.
  explicit Prices(const allocator::Settings& settings) : settings_(settings) {}

  void learn(PricedRun run);
  [[nodiscard]] bool empty() const { return levels_.empty(); }

  // The smallest card on which the step runs. std::nullopt if this form of a step was not priced.
  [[nodiscard]] std::optional<Bytes> needed(const Plan& plan, const Work& work) const;
  // Whether a card of this size serves the step: it has the needed memory. So a larger card never
  // serves less, although an allocator may be luckier on a smaller one.
  [[nodiscard]] std::optional<bool> is_served(const Plan& plan, const Work& work, Bytes card) const;

  // The fewest rows with which the step runs: 1, unless a layer needs several.
  [[nodiscard]] std::int64_t fewest_rows() const { return fewest_rows_; }
  void set_fewest_rows(std::int64_t rows) { fewest_rows_ = rows; }

 private:
  using Form = std::set<std::string>;  // the techniques of a plan
  struct Need {
    dryrun::CardBounds bounds;
    std::optional<Bytes> exact;  // once it was asked for
  };
  // A step whose batch runs at once, and a step in parts, which holds gradients during the second
  // forward pass.
  struct Level {
    dryrun::RequestPredictor whole{{}}, parts{{}};
    std::int64_t whole_rows = 0;
    // By the allocator's settings, whether it runs at once, and the size.
    mutable std::map<std::tuple<std::string, bool, std::int64_t>, Need> needs;
  };
  struct Place {
    const Level* level = nullptr;
    bool whole = false;
    std::int64_t size = 0;
    [[nodiscard]] const dryrun::RequestPredictor& predictor() const {
      return whole ? level->whole : level->parts;
    }
  };

  [[nodiscard]] std::optional<Place> place_of(const Plan& plan, const Work& work) const;
  [[nodiscard]] Need* need_of(const Plan& plan, const Place& place) const;
  [[nodiscard]] Bytes exact(Need& need, const Plan& plan, const Place& place) const;
  [[nodiscard]] allocator::CachingAllocator card_of(const Plan& plan) const;

  allocator::Settings settings_;
  std::map<Form, Level> levels_;
  std::int64_t fewest_rows_ = 1;
};

}  // namespace headroom::train
