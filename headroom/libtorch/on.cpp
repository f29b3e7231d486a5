#include "headroom/libtorch/on.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <algorithm>
#include <mutex>

namespace headroom::libtorch {
namespace {

// The key of LibTorch's own test mode, above autograd: nothing else uses it, and it sees every
// operator of the threads that include it.
constexpr c10::DispatchKey kKey = c10::DispatchKey::TESTING_ONLY_GenericMode;
thread_local c10::Device target(c10::DeviceType::CPU);

// Without a device, an operator that is given a tensor means the place of that tensor; one that is
// given none means the default, which is what this mode is about.
bool has_tensor(const torch::jit::Stack& stack, std::size_t arguments) {
  return std::any_of(
      stack.end() - static_cast<std::ptrdiff_t>(arguments), stack.end(),
      [](const c10::IValue& value) { return value.isTensor() || value.isTensorList(); });
}

void redirect(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
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

void register_mode() {
  static std::once_flag flag;
  std::call_once(flag, [] {
    static torch::Library& all =
        *new torch::Library(torch::Library::IMPL, "_", kKey, __FILE__, __LINE__);
    all.fallback(torch::CppFunction::makeFromBoxedFunction<&redirect>());
  });
}

}  // namespace

OnDeviceScope::OnDeviceScope(c10::Device device)
    : before_(target), was_on_(c10::impl::tls_is_dispatch_key_included(kKey)) {
  register_mode();
  target = device;
  c10::impl::tls_set_dispatch_key_included(kKey, true);
}

OnDeviceScope::~OnDeviceScope() {
  target = before_;
  c10::impl::tls_set_dispatch_key_included(kKey, was_on_);
}

}  // namespace headroom::libtorch
