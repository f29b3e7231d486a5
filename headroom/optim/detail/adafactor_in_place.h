// torch.optim's Adafactor in memory that was reserved before: for commit().
//
// It computes in float where parameters have less precision, and rounds once. Sums run over at most
// 1024 numbers at a time: CUDA takes memory for larger ones.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "headroom/optim/optimizer.h"

namespace headroom::optim::detail {

class AdafactorInPlace {
 public:
  AdafactorInPlace() = default;
  // Reserves for the largest of these parameters, for each device and type.
  explicit AdafactorInPlace(const std::vector<at::Tensor>& parameters);

  void update(const at::Tensor& parameter, const at::Tensor& gradient, State& state,
              const AdafactorOptions& options, double epsilon);

 private:
  // Flat memory of one device and type; a step takes the beginning of each.
  struct Place {
    at::Tensor update, gradient;   // as large as the largest parameter
    at::Tensor rows, columns;      // of the running means; undefined where they have this type
    at::Tensor line, part, means;  // of sums
    at::Tensor norms;              // of parts, of parts of parts, ...
    at::Tensor size, damping;      // scalars
  };
  struct Need;  // numbers that each takes

  [[nodiscard]] Place& place_for(const at::Tensor& parameter);

  std::vector<Place> places_;
};

}  // namespace headroom::optim::detail
