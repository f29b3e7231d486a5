// One call of an operator on a simulated card: the operator, the card, and the values on LibTorch's
// stack - first the arguments, afterwards the results.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "headroom/libtorch/tensors_in.h"
#include "headroom/sim/device/alias.h"
#include "headroom/sim/dispatch/operator_facts.h"

namespace headroom::sim {
class Card;
}

namespace headroom::sim::detail {

struct Call {
  const c10::OperatorHandle& handle;
  const Operator& op;
  torch::jit::Stack& stack;
  std::size_t first;  // the first argument on the stack, later the first result
  Card* card;
  bool knows_much = false;  // a large argument is known (known.h)

  // Finds the card of the arguments; without any, the current card. Throws if they lie on several
  // cards, or on a card and on the host where CUDA does not accept that.
  Call(const c10::OperatorHandle& handle, const Operator& op, torch::jit::Stack& stack);

  // A copy of the arguments or results; and a way to replace them.
  [[nodiscard]] std::vector<c10::IValue> values() const;
  void set_values(std::vector<c10::IValue> values);

  // Replaces the card's tensors, devices and generators by another backend's.
  void replace_arguments(Aliases& aliases, c10::DeviceType as);
  // Replaces only devices and generators.
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

// Turns results of another backend's kernel into the card's. Each of their storages gets one
// storage of the same size here, however many results share it.
class NewResults {
 public:
  explicit NewResults(Card& card) : card_(&card) {}
  // Without data. `is_first`: set to true for the first result over its storage.
  at::Tensor like(const at::Tensor& result, bool* is_first = nullptr);

 private:
  Card* card_;
  std::vector<std::pair<const c10::StorageImpl*, c10::Storage>> made_;
};

}  // namespace headroom::sim::detail
