// Copies whole storages to the host and back, on two streams beside the computation: one for each
// direction, on every device. Saved and idle tensors wait by it (saved_storages.h, idle_tensors.h).
//
// Threads: call everything from any thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "headroom/memory/host_pool.h"

namespace headroom::memory::detail {

inline constexpr c10::DispatchKeySet kModesOfOthers =
    c10::DispatchKeySet{c10::DispatchKey::Python,
                        c10::DispatchKey::PythonTLSSnapshot,
                        c10::DispatchKey::PythonDispatcher,
                        c10::DispatchKey::PreDispatch,
                        c10::DispatchKey::FuncTorchDynamicLayerFrontMode,
                        c10::DispatchKey::FuncTorchDynamicLayerBackMode,
                        c10::DispatchKey::Functionalize} |
    c10::autocast_dispatch_keyset | c10::autograd_dispatch_keyset_with_ADInplaceOrView;

// Copies are made inside an operator or a backward pass of the program. While this lives they make
// no graph, and Python's modes and function transforms do not see them.
struct OwnWork {
  c10::impl::ExcludeDispatchKeyGuard modes{kModesOfOthers};
  at::NoGradGuard no_grad;
};

// The content of a storage on the host. The events are of its last copies.
struct HostCopy {
  HostPool::Buffer buffer;
  std::shared_ptr<c10::Event> left;  // the device's memory may be given out after it
};

class Mover {
 public:
  // `pinned`: through page-locked memory. `copies`: false for dry runs, whose tensors have no data.
  Mover(bool pinned, bool copies) : pinned_(pinned), copies_(copies) {}

  // Begins to copy what the work given to `writer` and to the current stream leaves in the storage.
  [[nodiscard]] HostCopy out(const c10::Storage& from, const c10::Stream& writer,
                             HostPool::Lock lock);
  // New memory of the device, for the current stream there, and the event from which on it has the
  // content. `from` may be used again then, too. Throws if the device has no memory.
  [[nodiscard]] std::pair<c10::Storage, std::shared_ptr<c10::Event>> in(HostCopy& from,
                                                                        c10::Device device);

  [[nodiscard]] bool copies(c10::Device device) const;
  [[nodiscard]] HostPool& pool() const { return *pool_; }

 private:
  struct Lanes {
    c10::Stream out, in;
  };
  const Lanes& lanes(c10::Device device);

  const bool pinned_, copies_;
  const std::shared_ptr<HostPool> pool_ = HostPool::of_process();
  std::mutex mutex_;  // guards the next
  std::map<std::pair<c10::DeviceType, c10::DeviceIndex>, Lanes> lanes_;
};

}  // namespace headroom::memory::detail
