// Watches a run's losses for those that are not finite: weights that have become NaN stay so.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>

namespace headroom::cli {

class LossWatch {
 public:
  // `most`: this many in a row end the run; 0: never.
  explicit LossWatch(std::int64_t most) : most_(most) {}

  void hear(double loss) { count_ = std::isfinite(loss) ? 0 : count_ + 1; }
  [[nodiscard]] bool is_lost() const { return most_ > 0 && count_ >= most_; }
  // Nothing after a loss that is a finite number.
  [[nodiscard]] std::string sentence() const {
    if (count_ == 0) return "";
    return count_ == 1 ? "the last loss is not a finite number"
                       : "the last " + std::to_string(count_) + " losses are not finite numbers";
  }

 private:
  std::int64_t most_, count_ = 0;
};

}  // namespace headroom::cli
