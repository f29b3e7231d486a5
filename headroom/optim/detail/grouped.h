// The part that all optimizers share: options for each group of parameters.
#pragma once

#include <string_view>
#include <vector>

#include "headroom/base/error.h"
#include "headroom/optim/optimizer.h"

namespace headroom::optim::detail {

template <typename Options>
class Grouped : public Optimizer {
 protected:
  Grouped(const std::vector<Group<Options>>& groups, OptimizerForm form)
      : Optimizer(parts(groups), form) {
    for (const Group<Options>& group : groups) options_.push_back(group.options);
  }
  // With the group's present learning rate.
  [[nodiscard]] Options options(std::size_t group) const {
    Options now = options_[group];
    if (const std::optional<double> rate = learning_rate(group)) now.learning_rate = *rate;
    return now;
  }

 private:
  static std::vector<Part> parts(const std::vector<Group<Options>>& groups) {
    std::vector<Part> parts;
    for (const Group<Options>& group : groups)
      parts.push_back({group.parameters, group.options.learning_rate});
    return parts;
  }

  std::vector<Options> options_;
};

// The one form of all groups. Throws UsageError if there is no group, or if forms differ.
template <typename Options>
[[nodiscard]] OptimizerForm form_of(std::string_view optimizer,
                                    const std::vector<Group<Options>>& groups) {
  if (groups.empty()) throw UsageError(expectation(optimizer, "a group of parameters", "none"));
  for (const Group<Options>& group : groups)
    if (group.options.form != groups[0].options.form)
      throw UsageError(expectation(optimizer, "one form for all groups", "several"));
  return groups[0].options.form;
}

}  // namespace headroom::optim::detail
