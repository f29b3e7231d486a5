#include "headroom/memory/detail/mover.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "headroom/libtorch/streams.h"
#include "headroom/memory/device_memory.h"
#include "headroom/memory/saved_storage.h"

namespace headroom::memory::detail {
bool Mover::copies(c10::Device device) const {
  return copies_ && memory_of(device).has_data(device.index());
}

HostCopy Mover::out(const c10::Storage& from, const c10::Stream& writer, HostPool::Lock lock) {
  const OwnWork own;
  const c10::Device device = from.device();
  const auto size = static_cast<std::int64_t>(from.nbytes());
  HostCopy copy;
  const bool is_real = copies(device);
  copy.buffer =
      is_real ? pool_->take(size, pinned_ ? lock : HostPool::Lock::never)
              : HostPool::Buffer::of(at::empty({size}, at::device(at::kMeta).dtype(at::kByte)));
  const c10::Stream& out = lanes(device).out;
  const c10::Stream now = libtorch::current_stream(device);
  libtorch::order(now, out);
  if (writer != now) libtorch::order(writer, out);
  if (is_real) {
    if (const auto& before = copy.buffer.used_before()) before->block(out);
    const c10::StreamGuard on(out);
    copy.buffer.bytes().copy_(as_bytes(from), /*non_blocking=*/true);
  }
  copy.left = std::make_shared<c10::Event>(device.type());
  copy.left->record(out);
  copy.buffer.used_until(copy.left);
  return copy;
}

std::pair<c10::Storage, std::shared_ptr<c10::Event>> Mover::in(HostCopy& from, c10::Device device) {
  const OwnWork own;
  const c10::DeviceGuard on_its(device);
  const at::Tensor made =
      at::empty({from.buffer.bytes().numel()}, at::TensorOptions(device).dtype(at::kByte));
  const c10::Stream& in = lanes(device).in;
  libtorch::order(libtorch::current_stream(device), in);
  if (from.left) from.left->block(in);
  if (copies(device)) {
    const c10::StreamGuard on(in);
    made.copy_(from.buffer.bytes(), /*non_blocking=*/true);
  }
  auto back = std::make_shared<c10::Event>(device.type());
  back->record(in);
  from.buffer.used_until(back);
  return {made.storage(), back};
}

const Mover::Lanes& Mover::lanes(c10::Device device) {
  const std::lock_guard lock(mutex_);
  const std::pair key(device.type(), device.index());
  const auto found = lanes_.find(key);
  if (found != lanes_.end()) return found->second;
  const c10::impl::VirtualGuardImpl guard(device.type());
  return lanes_
      .emplace(key, Lanes{guard.getStreamFromGlobalPool(device, false),
                          guard.getStreamFromGlobalPool(device, false)})
      .first->second;
}

}  // namespace headroom::memory::detail
