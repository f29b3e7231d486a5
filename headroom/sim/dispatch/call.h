// One operator that is about to run on a simulated card: which operator, which card, and the values
// on LibTorch's stack, which are its arguments first and its results afterwards.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "headroom/libtorch/tensors_in.h"
#include "headroom/sim/device/alias.h"
#include "headroom/sim/dispatch/operators.h"

namespace headroom::sim {
class Card;
}

namespace headroom::sim::detail {

struct Call {
  const c10::OperatorHandle& handle;
  const Operator& op;
  torch::jit::Stack& stack;
  std::size_t first;  // of the arguments, later of the results, on the stack
  Card* card;
  bool knows_much = false;  // an argument is known though it is large (known.h)

  // The card of the arguments; without one, the current card. Fails if they lie on several, or on a
  // card and on the host where CUDA does not take that.
  Call(const c10::OperatorHandle& handle, const Operator& op, torch::jit::Stack& stack);

  // A copy of the arguments, or results; and the other values in their place.
  [[nodiscard]] std::vector<c10::IValue> values() const;
  void set_values(std::vector<c10::IValue> values);

  // Tensors, devices and generators of the card become another backend's.
  void replace_arguments(Aliases& aliases, c10::DeviceType as);
  // The devices and generators alone.
  void replace_devices(c10::DeviceType as);

  template <typename Do>
  void for_each_tensor(Do&& act) const {
    for (std::size_t i = first; i < stack.size(); ++i) libtorch::for_each_tensor(stack[i], act);
  }
  template <typename Replace>
  void replace_tensors(Replace&& replace) {
    for (std::size_t i = first; i < stack.size(); ++i) libtorch::replace_tensors(stack[i], replace);
  }
};

// What another backend's kernel made becomes the card's: every storage it made gets one of the same
// size here, whatever the number of results that share it.
class NewResults {
 public:
  explicit NewResults(Card& card) : card_(&card) {}
  // Without data. `is_first`: it is the first result over its storage.
  at::Tensor like(const at::Tensor& result, bool* is_first = nullptr);

 private:
  Card* card_;
  std::vector<std::pair<const c10::StorageImpl*, c10::Storage>> made_;
};

}  // namespace headroom::sim::detail
