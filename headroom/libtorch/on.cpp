#include "headroom/libtorch/on.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <mutex>

namespace headroom::libtorch {
namespace {

// The key of LibTorch's own test mode, above autograd: nothing else uses it, and it sees every
// operator of the threads that include it.
constexpr c10::DispatchKey kKey = c10::DispatchKey::TESTING_ONLY_GenericMode;
thread_local c10::Device target(c10::DeviceType::CPU);

void redirect(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& arguments = op.schema().arguments();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].name() != "device") continue;
    c10::IValue& value = (*stack)[stack->size() - arguments.size() + i];
    if (value.isNone() || value.toDevice().is_cpu()) value = target;
  }
  const c10::impl::ExcludeDispatchKeyGuard once(kKey);
  op.callBoxed(stack);
}

void register_mode() {
  static std::once_flag flag;
  std::call_once(flag, [] {
    static torch::Library& all = *new torch::Library(torch::Library::IMPL, "_", kKey, __FILE__,
                                                     __LINE__);
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
