#include "headroom/sim/detail/known.h"

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "headroom/sim/detail/block.h"
#include "headroom/sim/detail/cards.h"
#include "headroom/sim/detail/unknown.h"
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

// Few enough if they come from the host. Numbers of 8 and 16 bits are quantised weights there.
bool is_index(const Tensor& tensor) {
  const at::ScalarType type = tensor.scalar_type();
  return (type == at::kLong || type == at::kInt || type == at::kBool) &&
         tensor.storage().nbytes() <= kMostKnownFromHost;
}

// By being overwritten.
bool may_become_known(const Tensor& tensor) {
  const Block* const block = block_of(tensor.storage());
  return block != nullptr && (block->blank || covers_its_storage(tensor));
}

// Of the host: known whatever its type, if it is small.
bool is_known_on_host(const Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.has_storage() && (is_small(tensor) || is_index(tensor));
}

bool is_knowable(const Tensor& tensor, bool much) {
  return on_card(tensor) && tensor.has_storage() && !tensor.is_complex() &&
         (is_small(tensor) || (much && is_index(tensor))) && !is_of_computing(tensor);
}

bool has_only(const Tensor& tensor, unsigned char byte) {
  const auto* const bytes = static_cast<const unsigned char*>(tensor.storage().data());
  return std::all_of(bytes, bytes + tensor.storage().nbytes(),
                     [&](unsigned char one) { return one == byte; });
}

// Known, and enough for the result: zero times anything is zero, true or anything is true.
bool decides_alone(const Tensor& tensor, Operator::Decides how) {
  const bool known =
      on_card(tensor) ? is_known(tensor) && is_knowable(tensor, true) : is_known_on_host(tensor);
  if (!known || tensor.numel() == 0) return false;
  return how == Operator::Decides::zero ? has_only(tensor, 0)
                                        : tensor.scalar_type() == at::kBool && has_only(tensor, 1);
}

bool is_decided(const Call& call) {
  if (call.op.decides == Operator::Decides::nothing) return false;
  bool decided = false, dense = true;
  call.for_each_tensor([&](const Tensor& tensor) {
    dense = dense && tensor.has_storage();
    decided = decided || (dense && decides_alone(tensor, call.op.decides));
  });
  return decided && dense;
}

}  // namespace

bool covers_its_storage(const Tensor& tensor) {
  return tensor.is_non_overlapping_and_dense() &&
         static_cast<std::size_t>(tensor.numel()) * tensor.itemsize() == tensor.storage().nbytes();
}

bool is_small(const Tensor& tensor) {
  return tensor.storage().nbytes() <= kMostKnown * tensor.itemsize();
}

bool is_knowable(const Tensor& tensor) {
  return is_knowable(tensor, on_card(tensor) && is_known(tensor));
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

void forget(const Tensor& tensor, bool still_read) {
  if (!on_card(tensor) || !tensor.has_storage()) return;
  Block* const block = block_of(tensor.storage());
  if (block == nullptr) return;
  block->blank = false;
  if (tensor.storage().data() != nullptr && !is_of_computing(tensor)) {
    c10::DataPtr known = std::move(block->host);
    give_data(tensor.storage(), c10::DataPtr(nullptr, c10::Device(c10::kCPU)));
    if (still_read && keeps_reads(tensor)) block->reads = std::move(known);
  }
  if (!still_read) forget_reads(tensor);
}

bool knows_arguments(Call& call) {
  if (!call.op.can_know) return false;
  if (is_decided(call)) return true;
  const bool draws = call.op.generator_argument >= 0;
  bool all_known = true;
  for (std::size_t i = 0; i < call.op.arguments && all_known; ++i) {
    const bool overwritten = call.op.overwrites && call.op.is_written(i);
    libtorch::for_each_tensor(call.stack[call.first + i], [&](const Tensor& tensor) {
      if (!tensor.defined()) return;
      if (on_card(tensor))
        all_known = all_known && is_knowable(tensor) && (!draws || is_whole(tensor)) &&
                    (is_known(tensor) || (overwritten && may_become_known(tensor)));
      else
        all_known = all_known && is_known_on_host(tensor);
      call.knows_much = call.knows_much || (all_known && !is_small(tensor));
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

void forget_written(const Call& call, bool still_read) {
  for (const std::size_t i : call.op.written)
    libtorch::for_each_tensor(call.stack[call.first + i],
                              [&](const Tensor& tensor) { forget(tensor, still_read); });
}

bool has_knowable_results(const Call& call) {
  bool all = true;
  call.for_each_tensor([&](const Tensor& tensor) {
    all = all && (!tensor.defined() || is_knowable(tensor, call.knows_much));
  });
  return all;
}

}  // namespace headroom::sim::detail

namespace headroom::sim {

bool knows_values(const at::Tensor& tensor) {
  const Card* const card = detail::find_card(tensor.device().index());
  const detail::Block* const block = detail::block_of(tensor.storage());
  if (card == nullptr || (block != nullptr && block->card.get() != card)) return false;
  return card->mode() == Mode::compute || (detail::is_knowable(tensor) && detail::is_known(tensor));
}

void forget_values(const at::Tensor& tensor) {
  if (detail::on_card(tensor) &&
      detail::card_at(tensor.device().index()).mode() == Mode::shape_only)
    detail::forget(tensor);
}

}  // namespace headroom::sim
