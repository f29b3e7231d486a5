#include "headroom/sim/device/known.h"

#include <c10/core/ScalarType.h>

#include <cstring>

#include "headroom/sim/device/alias.h"
#include "headroom/sim/device/block.h"

namespace headroom::sim::detail {
namespace {

using at::Tensor;

bool is_assumed(const Tensor& tensor) {
  const Block* const block = block_of(tensor.storage());
  return block != nullptr && block->assumed;
}

// Integers of 32 or 64 bits and booleans; those of 8 and 16 bits from the host are quantised
// weights.
bool is_index(const Tensor& tensor) {
  const at::ScalarType type = tensor.scalar_type();
  return (type == at::kLong || type == at::kInt || type == at::kBool || is_assumed(tensor)) &&
         tensor.storage().nbytes() <= kMostKnownFromHost;
}

}  // namespace

bool is_of_computing(const Tensor& tensor) {
  const Block* const block = block_of(tensor.storage());
  return !c10::isIntegralType(tensor.scalar_type(), /*includeBool=*/true) && block != nullptr &&
         block->host.get() != nullptr && !block->known;
}

bool may_become_known(const Tensor& tensor) {
  const Block* const block = block_of(tensor.storage());
  return block != nullptr && (block->blank || covers_its_storage(tensor));
}

bool is_known_on_host(const Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.has_storage() && (is_small(tensor) || is_index(tensor));
}

bool is_knowable(const Tensor& tensor, bool much) {
  return on_card(tensor) && tensor.has_storage() && !tensor.is_complex() &&
         (is_small(tensor) || (much && is_index(tensor))) && !is_of_computing(tensor);
}

bool is_knowable(const Tensor& tensor) {
  return is_knowable(tensor, on_card(tensor) && is_known(tensor));
}

bool covers_its_storage(const Tensor& tensor) {
  return tensor.is_non_overlapping_and_dense() &&
         static_cast<std::size_t>(tensor.numel()) * tensor.itemsize() == tensor.storage().nbytes();
}

bool is_small(const Tensor& tensor) {
  return tensor.storage().nbytes() <= kMostKnown * tensor.itemsize();
}

bool is_known(const Tensor& tensor) {
  return tensor.has_storage() && (tensor.numel() == 0 || tensor.storage().data() != nullptr);
}

bool make_room_for_values(const Tensor& tensor, bool from_host) {
  if (!is_knowable(tensor, from_host)) return false;
  if (is_known(tensor)) return true;
  if (!may_become_known(tensor)) return false;
  give_data(tensor.storage());
  if (!covers_its_storage(tensor))
    std::memset(tensor.storage().mutable_data(), 0, tensor.storage().nbytes());
  return true;
}

}  // namespace headroom::sim::detail
