#include "headroom/sim/as_cuda.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/to_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <algorithm>
#include <deque>

#include "headroom/base/error.h"
#include "headroom/sim/device/cards.h"

namespace headroom::sim {
namespace {

using at::Tensor;
using c10::Device;
using c10::DispatchKey;
using c10::Stream;
constexpr auto kCuda = c10::DeviceType::CUDA;
constexpr auto kSim = c10::DeviceType::PrivateUse1;

Device on_sim(Device device) {
  return device.is_cuda() ? Device(kSim, device.index()) : device;
}
std::optional<Device> on_sim(std::optional<Device> device) {
  return device ? std::optional(on_sim(*device)) : device;
}

// LibTorch asks the guard of a device's type for the current device and its streams.
class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  explicit Guard(const c10::impl::DeviceGuardImplInterface& sim) : sim_(sim) {}

  c10::DeviceType type() const override { return kCuda; }
  Device exchangeDevice(Device device) const override {
    return as_cuda(sim_.exchangeDevice(on_sim(device)));
  }
  Device getDevice() const override { return as_cuda(sim_.getDevice()); }
  void setDevice(Device device) const override { sim_.setDevice(on_sim(device)); }
  void uncheckedSetDevice(Device device) const noexcept override {
    sim_.uncheckedSetDevice(Device(kSim, device.index()));
  }
  // Autograd's threads are sim's own.
  c10::DeviceIndex deviceCount() const noexcept override { return 0; }

  Stream getStream(Device device) const override { return sim_.getStream(on_sim(device)); }
  Stream getDefaultStream(Device device) const override {
    return sim_.getDefaultStream(on_sim(device));
  }
  Stream getNewStream(Device device, int priority) const override {
    return sim_.getNewStream(on_sim(device), priority);
  }
  Stream getStreamFromGlobalPool(Device device, bool high_priority) const override {
    return sim_.getStreamFromGlobalPool(on_sim(device), high_priority);
  }
  Stream exchangeStream(Stream stream) const override { return sim_.exchangeStream(stream); }
  bool queryStream(const Stream& stream) const override { return sim_.queryStream(stream); }
  void synchronizeStream(const Stream& stream) const override { sim_.synchronizeStream(stream); }
  void synchronizeDevice(c10::DeviceIndex card) const override { sim_.synchronizeDevice(card); }

  void record(void** event, const Stream& stream, c10::DeviceIndex card,
              c10::EventFlag flag) const override {
    sim_.record(event, stream, card, flag);
  }
  void block(void* event, const Stream& stream) const override { sim_.block(event, stream); }
  bool queryEvent(void* event) const override { return sim_.queryEvent(event); }
  void synchronizeEvent(void* event) const override { sim_.synchronizeEvent(event); }
  void destroyEvent(void* event, c10::DeviceIndex card) const noexcept override {
    sim_.destroyEvent(event, card);
  }
  double elapsedTime(void* from, void* to, c10::DeviceIndex card) const override {
    return sim_.elapsedTime(from, to, card);
  }
  void recordDataPtrOnStream(const c10::DataPtr& pointer, const Stream& stream) const override {
    sim_.recordDataPtrOnStream(pointer, stream);
  }

 private:
  static Device as_cuda(Device device) { return {kCuda, device.index()}; }

  const c10::impl::DeviceGuardImplInterface& sim_;
};

// Runs an operator that makes tensors on the device it is given: on sim in place of CUDA.
void make_on_sim(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const std::size_t count = op.schema().arguments().size();
  for (std::size_t i = 0; i < count; ++i)
    if (c10::IValue& argument = torch::jit::peek(*stack, i, count); argument.isDevice())
      argument = on_sim(argument.toDevice());
  op.callBoxed(stack);
}

// LibTorch would take cuda:0 for another device than sim:0, and copy.
Tensor to_device(const Tensor& tensor, Device device, at::ScalarType type, bool non_blocking,
                 bool copy, std::optional<at::MemoryFormat> format) {
  return at::native::to(tensor, on_sim(device), type, non_blocking, copy, format);
}
Tensor to_layout(const Tensor& tensor, std::optional<at::ScalarType> type,
                 std::optional<at::Layout> layout, std::optional<Device> device,
                 std::optional<bool> pinned, bool non_blocking, bool copy,
                 std::optional<at::MemoryFormat> format) {
  return at::native::to(tensor, type, layout, on_sim(device), pinned, non_blocking, copy, format);
}

bool has_kernel_of_its_own(const c10::OperatorHandle& op) {
  return !op.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd) &&
         !op.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutograd) &&
         !op.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutogradNonFunctional);
}

// True if an operator finds its device by an argument, and not by its tensors.
bool makes_on_a_device(const c10::OperatorHandle& op) {
  bool on_device = false;
  for (const c10::Argument& argument : op.schema().arguments()) {
    const std::string type = argument.type()->str();
    if (type.find("Tensor") != std::string::npos) return false;
    on_device = on_device || type.find("Device") != std::string::npos;
  }
  return on_device;
}

// A LibTorch with CUDA has kernels in these places. It warns of theirs being replaced.
class Unwarned final : public c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

}  // namespace

struct AsCuda::Kernels {
  Kernels() {
    auto& registered = c10::impl::device_guard_impl_registry[static_cast<std::size_t>(kCuda)];
    before = registered.exchange(&guard);
    Unwarned unwarned;
    const c10::WarningUtils::WarningHandlerGuard quiet(&unwarned);
    for (const DispatchKey key : {DispatchKey::CUDA, DispatchKey::SparseCUDA})
      register_makers(library(key));
    for (const DispatchKey key : {DispatchKey::PrivateUse1, DispatchKey::AutogradPrivateUse1}) {
      torch::Library& aten = library(key);
      aten.impl("to.device", &to_device);
      aten.impl("to.dtype_layout", &to_layout);
    }
  }
  ~Kernels() {
    c10::impl::device_guard_impl_registry[static_cast<std::size_t>(kCuda)].store(before);
  }
  Kernels(const Kernels&) = delete;
  Kernels& operator=(const Kernels&) = delete;

  torch::Library& library(DispatchKey key) {
    return libraries.emplace_back(torch::Library::IMPL, "aten", key, __FILE__, __LINE__);
  }

  static void register_makers(torch::Library& aten) {
    for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
      if (!name.name.starts_with("aten::")) continue;
      const auto op = c10::Dispatcher::singleton().findSchema(name);
      if (!op || !has_kernel_of_its_own(*op) || !makes_on_a_device(*op)) continue;
      const std::string overload = name.overload_name.empty() ? "" : "." + name.overload_name;
      aten.impl((name.name.substr(6) + overload).c_str(),
                torch::CppFunction::makeFromBoxedFunction<&make_on_sim>());
    }
  }

  Guard guard{*c10::impl::getDeviceGuardImpl(kSim)};
  const c10::impl::DeviceGuardImplInterface* before = nullptr;
  std::deque<torch::Library> libraries;
};

AsCuda::AsCuda() {
  if (detail::show_as_cuda(true))
    throw UsageError(expectation("as_cuda", "one at a time", "a second one", "ending the first"));
  try {
    kernels_ = std::make_unique<Kernels>();
  } catch (...) {
    detail::show_as_cuda(false);
    throw;
  }
}

AsCuda::~AsCuda() {
  kernels_.reset();
  detail::show_as_cuda(false);
}

}  // namespace headroom::sim
