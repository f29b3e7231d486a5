// The protocol by which NVML hands out lists: the caller's count says how much room there is and
// afterwards how many there are. Too little room, also none at all, gives INSUFFICIENT_SIZE and the
// count that is needed; an empty list is a success for every caller.
#pragma once

#include <algorithm>
#include <vector>

#include "nvml_abi.h"

namespace fake_nvml {

template <class Element>
[[nodiscard]] Status give_list(const std::vector<Element>& list, unsigned* count, Element* out) {
  if (count == nullptr || (*count > 0 && out == nullptr)) return Status::kInvalidArgument;
  const unsigned room = *count;
  *count = static_cast<unsigned>(list.size());
  if (room < list.size()) return Status::kInsufficientSize;
  std::copy(list.begin(), list.end(), out);
  return Status::kSuccess;
}

}  // namespace fake_nvml
