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
// Of a model that is split into stages, each stage has a price: that of the stage alone, which
// takes the same memory as among the others. Rows are those of a replica.
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
#include "headroom/plan/pipeline.h"
#include "headroom/train/per_stage.h"
#include "headroom/train/plan.h"

namespace headroom::train {

// A batch, as far as its memory is concerned.
struct Work {
  std::int64_t rows = 0;
  double scale = 1;  // elements of a row, relative to those of the priced batch
};

// A dry run of a step, or of a stage's part of it.
struct PricedRun {
  Plan plan;
  std::int64_t rows = 0;  // of the batch
  dryrun::Requests requests;
  std::size_t stage = 0;
};

class Prices {
 public:
  // `settings`: of the allocator, where a plan has none of its own.
  explicit Prices(const allocator::Settings& settings, int stages = 1,
                  plan::Pipeline pipeline = plan::Pipeline::one_by_one)
      : settings_(settings), stages_(stages), pipeline_(pipeline) {}

  // Runs of all stages, for each plan and number of rows.
  void learn(PricedRun run);
  [[nodiscard]] bool empty() const { return forms_.empty(); }

  // The smallest cards on which the step runs. std::nullopt if this form of a step was not priced.
  [[nodiscard]] std::optional<PerStage> needed(const Plan& plan, const Work& work) const;
  // What it reserves on cards with room to spare, whose caches are never emptied: a little more.
  [[nodiscard]] std::optional<PerStage> peaks(const Plan& plan, const Work& work) const;
  // Whether cards of this size serve the step: they have the needed memory. So a larger card never
  // serves less, although an allocator may be luckier on a smaller one.
  [[nodiscard]] std::optional<bool> is_served(const Plan& plan, const Work& work,
                                              const PerStage& cards) const;

  // The fewest rows with which the step runs: 1, unless a layer needs several.
  [[nodiscard]] std::int64_t fewest_rows() const { return fewest_rows_; }
  void set_fewest_rows(std::int64_t rows) { fewest_rows_ = rows; }

 private:
  using Form = std::set<std::string>;  // the techniques of a plan
  struct Need {
    dryrun::CardBounds bounds;
    std::optional<Bytes> exact;  // once it was asked for
  };
  // Steps whose batch comes in as many parts, as far as memory is concerned: one; several, the
  // later ones beside the gradients of the first. In a pipeline each number differs that does not
  // fill it.
  struct Level {
    std::vector<dryrun::RequestPredictor> stages;
    std::int64_t rows = 0;  // of the batch, if only that is known
    // By the allocator's settings and the size of the parts, for each stage.
    mutable std::map<std::tuple<std::string, std::int64_t>, std::vector<Need>> needs = {};
  };
  struct Place {
    const Level* level = nullptr;
    std::int64_t size = 0;
  };

  // The number of parts from which on further ones need no more memory; 0: there is none.
  [[nodiscard]] int enough_parts() const;
  [[nodiscard]] std::optional<Place> place_of(const Plan& plan, const Work& work) const;
  [[nodiscard]] std::vector<Need>* needs_of(const Plan& plan, const Place& place) const;
  [[nodiscard]] Bytes exact(Need& need, std::size_t stage, const Plan& plan,
                            const Place& place) const;
  [[nodiscard]] allocator::CachingAllocator card_of(const Plan& plan) const;

  allocator::Settings settings_;
  int stages_;
  plan::Pipeline pipeline_;
  std::map<Form, std::map<int, Level>> forms_;
  std::int64_t fewest_rows_ = 1;
};

}  // namespace headroom::train
