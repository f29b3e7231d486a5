#include "headroom/sim/dispatch/known_arguments.h"

#include <algorithm>

#include "headroom/sim/device/known.h"
#include "headroom/sim/device/reads.h"

namespace headroom::sim::detail {
namespace {

using at::Tensor;

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
        all_known = all_known && is_knowable(tensor) &&
                    (!draws || c10::isIntegralType(tensor.scalar_type(), /*includeBool=*/true)) &&
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
