#include "headroom/nn/detail/check_labels.h"

#include <sstream>

#include "headroom/base/error.h"

namespace headroom::nn::detail {

void check_labels(std::string_view function, const at::Tensor& states, const at::Tensor& labels) {
  if (states.dim() > 0 && states.sizes().slice(0, states.dim() - 1) == labels.sizes() &&
      labels.numel() > 0)
    return;
  std::ostringstream received;
  received << "labels " << labels.sizes() << " for states " << states.sizes();
  throw UsageError(expectation(function, "a label for each row of states", received.str()));
}

}  // namespace headroom::nn::detail
