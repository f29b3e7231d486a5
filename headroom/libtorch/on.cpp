#include "headroom/libtorch/on.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <string_view>

#include "headroom/libtorch/detail/generic_mode.h"

namespace headroom::libtorch {
namespace {

constexpr c10::DispatchKey kKey = detail::kGenericMode;
thread_local c10::Device target(c10::DeviceType::CPU);
thread_local std::optional<c10::ScalarType> target_floats;

// An operator without a device argument uses the device of its tensor arguments; without tensors it
// uses the default device, which this mode replaces.
bool has_tensor(const torch::jit::Stack& stack, std::size_t arguments) {
  return std::any_of(
      stack.end() - static_cast<std::ptrdiff_t>(arguments), stack.end(),
      [](const c10::IValue& value) { return value.isTensor() || value.isTensorList(); });
}

// Factories that use the default dtype if none is given. `full` and others take it from their
// value.
bool makes_default_floats(const c10::OperatorHandle& op, const torch::jit::Stack& stack,
                          std::size_t arguments) {
  static constexpr std::array<std::string_view, 6> kFactories{"aten::empty", "aten::empty_strided",
                                                              "aten::zeros", "aten::ones",
                                                              "aten::rand",  "aten::randn"};
  const std::string& name = op.operator_name().name;
  if (name == "aten::full") return stack[stack.size() - arguments + 1].isDouble();
  return std::find(kFactories.begin(), kFactories.end(), name) != kFactories.end();
}

void set_floats(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const auto& arguments = op.schema().arguments();
  if (!target_floats || !makes_default_floats(op, stack, arguments.size())) return;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    c10::IValue& value = stack[stack.size() - arguments.size() + i];
    if (arguments[i].name() == "dtype" && value.isNone())
      value = static_cast<std::int64_t>(*target_floats);
  }
}

void run(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  detail::wake_arguments(*stack, op.schema().arguments().size());
  if (!c10::impl::tls_is_dispatch_key_included(kKey))
    return op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey),
                              stack);
  set_floats(op, *stack);
  const auto& arguments = op.schema().arguments();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].name() != "device") continue;
    c10::IValue& value = (*stack)[stack->size() - arguments.size() + i];
    const bool here =
        value.isNone() ? !has_tensor(*stack, arguments.size()) : value.toDevice().is_cpu();
    if (here) value = target;
  }
  const c10::impl::ExcludeDispatchKeyGuard once(kKey);
  op.callBoxed(stack);
}

}  // namespace

void detail::register_generic_mode() {
  static std::once_flag flag;
  std::call_once(flag, [] {
    static torch::Library& all =
        *new torch::Library(torch::Library::IMPL, "_", kKey, __FILE__, __LINE__);
    all.fallback(torch::CppFunction::makeFromBoxedFunction<&run>());
  });
}

OnDeviceScope::OnDeviceScope(c10::Device device, std::optional<c10::ScalarType> floats)
    : before_(target),
      floats_before_(target_floats),
      was_on_(c10::impl::tls_is_dispatch_key_included(kKey)) {
  detail::register_generic_mode();
  target = device;
  target_floats = floats;
  c10::impl::tls_set_dispatch_key_included(kKey, true);
}

OnDeviceScope::~OnDeviceScope() {
  target = before_;
  target_floats = floats_before_;
  c10::impl::tls_set_dispatch_key_included(kKey, was_on_);
}

}  // namespace headroom::libtorch
