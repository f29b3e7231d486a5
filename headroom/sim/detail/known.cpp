#include "headroom/sim/detail/known.h"

#include <c10/core/ScalarType.h>

#include <cstring>

#include "headroom/sim/detail/block.h"
#include "headroom/sim/detail/cards.h"
#include "headroom/sim/values.h"

namespace headroom::sim::detail {
namespace {

using at::Tensor;

bool is_whole(const Tensor& tensor) {
  return c10::isIntegralType(tensor.scalar_type(), /*includeBool=*/true);
}

// Floating numbers of a time in compute mode: weights, which no dry run may touch.
bool is_of_computing(const Tensor& tensor) {
  const Block* const block = block_of(tensor.storage());
  return !is_whole(tensor) && block != nullptr && block->host.get() != nullptr && !block->known;
}

bool covers_its_storage(const Tensor& tensor) {
  return tensor.is_non_overlapping_and_dense() &&
         static_cast<std::size_t>(tensor.numel()) * tensor.itemsize() == tensor.storage().nbytes();
}

bool is_small(const Tensor& tensor) {
  return tensor.storage().nbytes() <= kMostKnown * tensor.itemsize();
}

// By being overwritten.
bool may_become_known(const Tensor& tensor) {
  const Block* const block = block_of(tensor.storage());
  return block != nullptr && (block->blank || covers_its_storage(tensor));
}

// Of the host: known whatever its type, if it is small.
bool is_known_on_host(const Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.has_storage() && is_small(tensor);
}

}  // namespace

bool is_knowable(const Tensor& tensor) {
  return on_card(tensor) && tensor.has_storage() && !tensor.is_complex() && is_small(tensor) &&
         !is_of_computing(tensor);
}

bool is_known(const Tensor& tensor) {
  return tensor.has_storage() && (tensor.numel() == 0 || tensor.storage().data() != nullptr);
}

bool make_room_for_values(const Tensor& tensor) {
  if (!is_knowable(tensor)) return false;
  if (is_known(tensor)) return true;
  if (!may_become_known(tensor)) return false;
  give_data(tensor.storage());
  if (!covers_its_storage(tensor))
    std::memset(tensor.storage().mutable_data(), 0, tensor.storage().nbytes());
  return true;
}

void forget(const Tensor& tensor) {
  if (!on_card(tensor) || !tensor.has_storage()) return;
  Block* const block = block_of(tensor.storage());
  if (block == nullptr) return;
  block->blank = false;
  if (tensor.storage().data() != nullptr && !is_of_computing(tensor))
    give_data(tensor.storage(), c10::DataPtr(nullptr, c10::Device(c10::kCPU)));
}

bool knows_arguments(const Call& call) {
  if (!call.op.can_know) return false;
  bool all_known = true;
  for (std::size_t i = 0; i < call.op.arguments && all_known; ++i) {
    const bool overwritten = call.op.overwrites && call.op.is_written(i);
    libtorch::for_each_tensor(call.stack[call.first + i], [&](const Tensor& tensor) {
      if (!tensor.defined()) return;
      if (on_card(tensor))
        all_known = all_known && is_knowable(tensor) &&
                    (is_known(tensor) || (overwritten && may_become_known(tensor)));
      else
        all_known = all_known && is_known_on_host(tensor);
    });
  }
  return all_known;
}

void prepare_overwritten(const Call& call) {
  if (!call.op.overwrites) return;
  for (std::size_t i = 0; i < call.op.arguments; ++i)
    if (call.op.is_written(i))
      libtorch::for_each_tensor(call.stack[call.first + i], [](const Tensor& tensor) {
        if (on_card(tensor)) make_room_for_values(tensor);
      });
}

void forget_written(const Call& call) {
  for (const std::size_t i : call.op.written)
    libtorch::for_each_tensor(call.stack[call.first + i],
                              [](const Tensor& tensor) { forget(tensor); });
}

bool has_knowable_results(const Call& call) {
  bool all = true;
  call.for_each_tensor(
      [&](const Tensor& tensor) { all = all && (!tensor.defined() || is_knowable(tensor)); });
  return all;
}

}  // namespace headroom::sim::detail

namespace headroom::sim {

void forget_values(const at::Tensor& tensor) {
  if (detail::on_card(tensor) &&
      detail::card_at(tensor.device().index()).mode() == Mode::shape_only)
    detail::forget(tensor);
}

}  // namespace headroom::sim
