#include "headroom/optim/detail/groups.h"

#include <ATen/ATen.h>
#include <ATen/native/ForeachUtils.h>

namespace headroom::optim::detail {

// Calls PyTorch's own function, because the order is that of its hash table.
std::vector<Indices> by_device_and_type(const Tensors& tensors) {
  std::vector<Indices> groups;
  if (tensors.empty()) return groups;
  const std::vector<std::optional<at::Tensor>> first(tensors.begin(), tensors.end());
  for (const auto& [place, group] :
       at::native::_group_tensors_by_first_tensors_device_and_dtype({first}, true))
    groups.push_back(group.second);
  return groups;
}

}  // namespace headroom::optim::detail
