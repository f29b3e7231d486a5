#include "headroom/sim/dispatch/call.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "headroom/sim/device/block.h"
#include "headroom/sim/device/cards.h"
#include "headroom/sim/device/generator.h"

namespace headroom::sim::detail {
namespace {

using at::Tensor;
using c10::DeviceType;
using c10::IValue;

// PyTorch's words.
[[noreturn]] void several_devices(const Operator& op, int card, const c10::Device& other) {
  TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two ",
              "devices, sim:", card, " and ", other, "! (when running ", op.name, ")");
}

// Single numbers on the host are accepted beside tensors of any device.
bool is_host_array(const Tensor& tensor) {
  return tensor.defined() && tensor.device().is_cpu() && tensor.dim() > 0;
}

bool is_card(const IValue& value) {
  return value.isDevice() && value.toDevice().type() == DeviceType::PrivateUse1;
}

Card& card_of(const Call& call) {
  int index = -1;
  bool has_host_array = false;
  call.for_each_tensor([&](const Tensor& tensor) {
    has_host_array = has_host_array || is_host_array(tensor);
    if (!on_card(tensor)) return;
    if (index >= 0 && tensor.device().index() != index)
      several_devices(call.op, index, tensor.device());
    check_lives(tensor);
    if (index < 0) index = tensor.device().index();
  });
  if (index >= 0 && has_host_array && !call.op.takes_host_tensors)
    several_devices(call.op, index, c10::kCPU);
  for (std::size_t i = call.first; index < 0 && i < call.stack.size(); ++i)
    if (is_card(call.stack[i])) index = call.stack[i].toDevice().index();
  return card_at(index < 0 ? current_card() : index);
}

c10::Storage storage_on_card(Card& card, std::size_t bytes) {
  c10::DataPtr memory =
      bytes == 0 ? c10::DataPtr(nullptr, card.device()) : allocate_block(card, bytes, false);
  return {c10::Storage::use_byte_size_t(), bytes, std::move(memory), device_allocator(), true};
}

}  // namespace

Call::Call(const c10::OperatorHandle& of, const Operator& known, torch::jit::Stack& values)
    : handle(of),
      op(known),
      stack(values),
      first(values.size() - known.arguments),
      card(&card_of(*this)) {}

std::vector<IValue> Call::values() const {
  return {stack.begin() + static_cast<std::ptrdiff_t>(first), stack.end()};
}

void Call::set_values(std::vector<IValue> values) {
  stack.resize(first);
  for (IValue& value : values) stack.push_back(std::move(value));
}

void Call::replace_arguments(Aliases& aliases, DeviceType as) {
  replace_tensors([&](const Tensor& tensor) { return aliases.of(tensor); });
  replace_devices(as);
}

void Call::replace_devices(DeviceType as) {
  for (std::size_t i = first; i < stack.size(); ++i) {
    IValue& value = stack[i];
    if (is_card(value))
      value = c10::Device(as);
    else if (value.isGenerator() && value.toGenerator().device().type() == DeviceType::PrivateUse1)
      value = as == DeviceType::CPU ? IValue(on_cpu(value.toGenerator())) : IValue();
  }
}

Tensor NewResults::like(const Tensor& result, bool* is_first) {
  const c10::StorageImpl* const storage = result.storage().unsafeGetStorageImpl();
  auto same = std::find_if(made_.begin(), made_.end(),
                           [&](const auto& pair) { return pair.first == storage; });
  if (is_first != nullptr) *is_first = same == made_.end();
  if (same == made_.end())
    same = made_.insert(same, {storage, storage_on_card(*card_, result.storage().nbytes())});
  return rewrapped(result, same->second, c10::DispatchKey::PrivateUse1);
}

}  // namespace headroom::sim::detail
