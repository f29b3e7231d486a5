// Weights of a rank that are tied to weights of another stage (team.h). One of the two is trained,
// the other one is its copy.
//
// Threads: that of the rank.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "headroom/base/first_failure.h"
#include "headroom/parallel/group.h"

namespace headroom::train::detail {

struct Tied {
  at::Tensor weight;  // of this rank
  int other;          // the stage that has the other one
  bool is_copy;
};

class Ties {
 public:
  Ties() = default;  // none
  // Both stages have the same ties in the same order.
  Ties(parallel::Group stages, std::vector<Tied> all);

  // Takes memory for a piece of a gradient, unless it has it.
  void reserve();
  // The gradient of each copy comes on top of that of its weight. After a failure the other stage
  // is served all the same.
  void add_up(FirstFailure& failure);
  // Gives each copy the values of its weight. Takes no memory.
  void hand_over();
  // Those that no optimizer has.
  void drop_gradients();
  [[nodiscard]] std::vector<at::Tensor> copies() const;

 private:
  void give_gradient(const Tied& tied, FirstFailure& failure);
  void take_gradient(const Tied& tied, FirstFailure& failure);

  parallel::Group stages_;
  std::vector<Tied> all_;
  at::Tensor piece_, has_gradient_;
};

}  // namespace headroom::train::detail
