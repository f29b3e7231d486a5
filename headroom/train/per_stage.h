// Memory by stage of a split model (team.h): of each stage's card, or what a step needs there. One
// number stands for a model that is not split, or for the same on all cards.
//
//   const PerStage free({20_GiB, 20_GiB, 8_GiB});
//   if (needed.fits(free)) ...                   // on every card
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "headroom/base/bytes.h"

namespace headroom::train {

class PerStage {
 public:
  PerStage(Bytes all) : stages_{all} {}  // NOLINT: a number is one
  explicit PerStage(std::vector<Bytes> stages) : stages_(std::move(stages)) {}

  [[nodiscard]] Bytes of(std::size_t stage) const {
    return stages_.size() == 1 ? stages_.front() : stages_.at(stage);
  }
  [[nodiscard]] Bytes largest() const { return *std::max_element(stages_.begin(), stages_.end()); }
  [[nodiscard]] Bytes sum() const {
    Bytes sum;
    for (const Bytes one : stages_) sum += one;
    return sum;
  }
  [[nodiscard]] Bytes least() const { return *std::min_element(stages_.begin(), stages_.end()); }

  [[nodiscard]] bool fits(const PerStage& cards) const {
    for (std::size_t stage = 0; stage < std::max(stages_.size(), cards.stages_.size()); ++stage)
      if (of(stage) > cards.of(stage)) return false;
    return true;
  }
  // Each number replaced by `change(number)`.
  template <typename Change>
  [[nodiscard]] PerStage each(const Change& change) const {
    PerStage changed = *this;
    for (Bytes& one : changed.stages_) one = change(one);
    return changed;
  }
  // With at most this much for one stage.
  [[nodiscard]] PerStage limited(std::size_t stage, Bytes most) const {
    PerStage changed = *this;
    Bytes& one = changed.stages_.size() == 1 ? changed.stages_.front() : changed.stages_.at(stage);
    one = std::min(one, most);
    return changed;
  }

 private:
  std::vector<Bytes> stages_;
};

}  // namespace headroom::train
