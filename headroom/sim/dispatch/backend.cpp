#include "headroom/sim/dispatch/backend.h"

#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/Allocator.h>
#include <c10/core/DeviceType.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <deque>
#include <mutex>
#include <set>

#include "headroom/base/error.h"
#include "headroom/libtorch/autograd_engine.h"
#include "headroom/libtorch/set_data.h"
#include "headroom/sim/device/block.h"
#include "headroom/sim/device/register_device.h"
#include "headroom/sim/dispatch/cuda_operators.h"
#include "headroom/sim/dispatch/execute.h"
#include "headroom/sim/dispatch/registration.h"
#include "headroom/sim/dispatch/structured.h"
#include "headroom/sim/rules/families.h"

namespace headroom::sim::detail {
namespace {

bool beside_cuda = false;

void check_cuda() {
  if (const std::optional<c10::DeviceIndex> used = cuda_device_in_use())
    throw UnavailableError(
        expectation("simulate", "a process that has not used CUDA",
                    "one that has: cuda:" + std::to_string(*used) + " is in use",
                    "sim::in_child, or another program; LibTorch has one accelerator a process"));
}

void check_free() {
  if (at::isPrivateUse1HooksRegistered())
    throw UnavailableError(
        expectation("simulate", "LibTorch's place for an own device type (PrivateUse1) to be free",
                    "one taken by '" + c10::get_privateuse1_backend() + "'",
                    "simulate in a process without that backend"));
}

bool is_composite(const c10::OperatorHandle& op) {
  using c10::DispatchKey;
  return op.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutograd) ||
         op.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutogradNonFunctional) ||
         op.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd);
}

auto one_kernel() {
  return torch::CppFunction::makeFromBoxedFunction<&execute>();
}

// Operators that LibTorch composes of others unless a backend has its own kernel. CUDA has one for
// these, or we have a rule, so they stay whole here, too.
void register_whole(torch::Library& aten) {
  std::set<std::string> whole(cuda_operators().begin(), cuda_operators().end());
  for (const auto& [name, entry] : rules::table().entries()) whole.insert(name);
  for (const std::string& name : whole) {
    const auto op = c10::Dispatcher::singleton().findSchema(rules::in_aten(name));
    if (op && !op->hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1) && is_composite(*op))
      aten.impl(name.c_str(), one_kernel());
  }
}

void load() {
  check_free();
  c10::register_privateuse1_backend("sim");
  register_hooks();
  register_guard();
  c10::SetAllocator(c10::DeviceType::PrivateUse1, device_allocator(), 1);
  register_card_memory();
  register_pinned_allocator();
  // An engine that counts devices anew; in a Python process Python's engine stays.
  (void)libtorch::renew_engine();

  torch::Library& aten = library(c10::DispatchKey::PrivateUse1);
  register_kernels(aten);
  register_attention_route(aten);
  register_rnn_route(aten);
  register_composite_routes(aten);
  register_whole(aten);
  register_structured();
  library(c10::DispatchKey::PrivateUse1, "_").fallback(one_kernel());
  register_autocast();
  register_sparse();
  libtorch::install_set_data();
}

}  // namespace

torch::Library& library(c10::DispatchKey key, const char* names) {
  static auto& kept = *new std::deque<torch::Library>;
  return kept.emplace_back(torch::Library::IMPL, names, key, __FILE__, __LINE__);
}

void load_backend() {
  static std::once_flag once;
  check_cuda();
  std::call_once(once, load);
}

bool takes_the_place_of_cuda() {
  const auto& cuda = at::detail::getCUDAHooks();
  return !beside_cuda && !at::isPrivateUse1HooksRegistered() && cuda.hasCUDA() &&
         cuda.deviceCount() > 0;
}

std::optional<c10::DeviceIndex> cuda_device_in_use() {
  const auto& cuda = at::detail::getCUDAHooks();
  if (beside_cuda || !cuda.hasCUDA()) return {};
  for (c10::DeviceIndex i = 0; i < cuda.deviceCount(); ++i)
    if (cuda.hasPrimaryContext(i)) return i;
  return {};
}

void forget_cuda() noexcept {
  beside_cuda = true;
  // Otherwise autograd's threads would select a card of each device type.
  c10::impl::device_guard_impl_registry[static_cast<std::size_t>(c10::DeviceType::CUDA)].store(
      nullptr);
}

}  // namespace headroom::sim::detail
