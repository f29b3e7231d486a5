#include "headroom/nn/offload.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "headroom/base/error.h"

namespace headroom::nn {
namespace {

using at::Tensor;

// All bytes of a storage.
Tensor bytes_of(const Tensor& tensor) {
  const c10::Storage& storage = tensor.storage();
  return at::empty({0}, tensor.options().dtype(at::kByte))
      .set_(storage, 0, {static_cast<std::int64_t>(storage.nbytes())}, {1});
}

// A tensor of this geometry over other bytes.
struct Geometry {
  explicit Geometry(const Tensor& tensor)
      : sizes(tensor.sizes().vec()),
        strides(tensor.strides().vec()),
        offset(tensor.storage_offset()),
        type(tensor.scalar_type()) {}
  [[nodiscard]] Tensor over(const Tensor& bytes) const {
    return at::empty({0}, bytes.options().dtype(type))
        .set_(bytes.storage(), offset, sizes, strides);
  }
  std::vector<std::int64_t> sizes, strides;
  std::int64_t offset;
  at::ScalarType type;
};

bool can_move(const Tensor& tensor) {
  return tensor.layout() == at::kStrided && !tensor.is_cpu() && !tensor.is_meta() &&
         tensor.has_storage() && !tensor.is_conj() && !tensor.is_neg() && !tensor.is_inference() &&
         !tensor.is_nested();
}

c10::Stream current_stream(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

// What `later` does from now on comes after what `earlier` has been given.
void order(const c10::Stream& earlier, const c10::Stream& later) {
  c10::Event event(earlier.device_type());
  event.record(earlier);
  event.block(later);
}

}  // namespace

// The storages that wait. Copies out and copies in have a stream each on every device.
class Offload::Store : public std::enable_shared_from_this<Store> {
 public:
  Store(std::vector<Tensor> stays, const OffloadOptions& options)
      : options_(options), stays_(std::move(stays)) {}

  void begin();
  libtorch::Unpack pack(const Tensor& tensor);
  [[nodiscard]] OffloadUse use() const {
    const std::lock_guard lock(mutex_);
    return use_;
  }

 private:
  struct Parked {
    Parked(Store& owner, const Tensor& tensor)
        : store(owner.shared_from_this()),
          storage(tensor.storage().getWeakStorageImpl()),
          version(tensor._version()),
          device(tensor.device()),
          on_device(bytes_of(tensor)),
          left(device.type()) {}
    ~Parked() {
      const std::lock_guard lock(store->mutex_);
      store->free_host(*this);
    }
    Parked(const Parked&) = delete;
    Parked& operator=(const Parked&) = delete;

    const std::shared_ptr<Store> store;
    const c10::weak_intrusive_ptr<c10::StorageImpl> storage;  // that it was
    const std::int64_t version;
    const c10::Device device;
    Tensor on_device, on_host;  // bytes
    c10::Event left;
    std::optional<c10::Event> back;
  };
  struct Lanes {
    c10::Stream out, in;
  };

  std::shared_ptr<Parked> parked(const Tensor& tensor);
  void move_out(Parked& one);
  void let_go(std::size_t but);
  void move_in(Parked& one);
  Tensor bytes_again(const std::shared_ptr<Parked>& one);
  void fetch_ahead(const std::shared_ptr<Parked>& of);
  void free_host(Parked& one);
  const Lanes& lanes(c10::Device device);

  const OffloadOptions options_;
  const std::vector<Tensor> stays_;
  // Recursive: what was waiting is freed by its last user, under this lock or not.
  mutable std::recursive_mutex mutex_;
  std::set<const c10::StorageImpl*> staying_;
  std::map<const c10::StorageImpl*, std::weak_ptr<Parked>> known_;
  std::vector<std::weak_ptr<Parked>> in_order_;  // as they were saved
  std::deque<std::weak_ptr<Parked>> leaving_;
  std::map<c10::Device, Lanes, bool (*)(c10::Device, c10::Device)> lanes_{
      [](c10::Device a, c10::Device b) {
        return std::pair(a.type(), a.index()) < std::pair(b.type(), b.index());
      }};
  OffloadUse use_;
};

void Offload::Store::begin() {
  const std::lock_guard lock(mutex_);
  const auto is_gone = [](const auto& one) { return one.expired(); };
  std::erase_if(in_order_, is_gone);
  std::erase_if(known_, [&](const auto& one) { return is_gone(one.second); });
  staying_.clear();
  for (const Tensor& tensor : stays_)
    if (tensor.has_storage()) staying_.insert(tensor.storage().unsafeGetStorageImpl());
}

libtorch::Unpack Offload::Store::pack(const Tensor& tensor) {
  const auto stay = [&]() -> libtorch::Unpack { return [tensor] { return tensor; }; };
  if (!can_move(tensor)) return stay();
  const at::NoGradGuard no_grad;
  const std::shared_ptr<Parked> one = parked(tensor);
  if (!one) return stay();
  return [one, geometry = Geometry(tensor)] {
    const at::NoGradGuard no_graph;
    return geometry.over(one->store->bytes_again(one));
  };
}

// Null: it stays on its device.
std::shared_ptr<Offload::Store::Parked> Offload::Store::parked(const Tensor& tensor) {
  const c10::StorageImpl* const storage = tensor.storage().unsafeGetStorageImpl();
  const auto size = static_cast<std::int64_t>(storage->nbytes());
  const std::lock_guard lock(mutex_);
  if (size < options_.smallest.count || staying_.contains(storage)) return nullptr;
  if (const auto found = known_.find(storage); found != known_.end()) {
    const std::shared_ptr<Parked> same = found->second.lock();
    if (same && !same->storage.expired() && same->version == tensor._version()) return same;
  }
  if (options_.host_budget && use_.in_host.count + size > options_.host_budget->count) {
    ++use_.stayed;
    return nullptr;
  }
  const auto one = std::make_shared<Parked>(*this, tensor);
  move_out(*one);
  known_[storage] = one;
  in_order_.push_back(one);
  leaving_.push_back(one);
  let_go(static_cast<std::size_t>(options_.ahead));
  return one;
}

void Offload::Store::move_out(Parked& one) {
  const std::int64_t size = one.on_device.numel();
  one.on_host = at::empty({size}, at::TensorOptions(at::kByte).pinned_memory(options_.pinned));
  const c10::Stream& out = lanes(one.device).out;
  order(current_stream(one.device), out);
  {
    const c10::StreamGuard on(out);
    one.on_host.copy_(one.on_device, /*non_blocking=*/true);
  }
  one.left.record(out);
  ++use_.moved;
  use_.in_host.count += size;
  use_.peak_in_host = std::max(use_.peak_in_host, use_.in_host);
}

// Frees the device's memory of all but the last ones: what computes next waits until they have
// left, since it may get that memory.
void Offload::Store::let_go(std::size_t but) {
  while (leaving_.size() > but) {
    if (const std::shared_ptr<Parked> one = leaving_.front().lock(); one && !one->back) {
      one->left.block(current_stream(one->device));
      one->on_device.reset();
    }
    leaving_.pop_front();
  }
}

// The memory comes from the current stream, where it will be used and freed.
void Offload::Store::move_in(Parked& one) {
  const c10::DeviceGuard on_its(one.device);
  one.on_device = at::empty(one.on_host.sizes(), at::TensorOptions(one.device).dtype(at::kByte));
  const c10::Stream& in = lanes(one.device).in;
  order(current_stream(one.device), in);
  one.left.block(in);
  {
    const c10::StreamGuard on(in);
    one.on_device.copy_(one.on_host, /*non_blocking=*/true);
  }
  one.back.emplace(one.device.type());
  one.back->record(in);
  free_host(one);
}

Tensor Offload::Store::bytes_again(const std::shared_ptr<Parked>& one) {
  const std::lock_guard lock(mutex_);
  if (!one->on_device.defined()) move_in(*one);
  if (one->back) one->back->block(current_stream(one->device));
  fetch_ahead(one);
  return one->on_device;
}

// Those that were saved just before are needed next.
void Offload::Store::fetch_ahead(const std::shared_ptr<Parked>& of) {
  const auto is_this = [&](const auto& one) { return one.lock() == of; };
  auto at = std::find_if(in_order_.rbegin(), in_order_.rend(), is_this);
  if (at == in_order_.rend()) return;
  int fetched = 0;
  for (++at; at != in_order_.rend() && fetched < options_.ahead; ++at)
    if (const std::shared_ptr<Parked> next = at->lock(); next && next->device == of->device) {
      if (!next->on_device.defined()) move_in(*next);
      ++fetched;
    }
}

// Page-locked memory that is freed is not given out again before its copies have ended.
void Offload::Store::free_host(Parked& one) {
  if (!one.on_host.defined()) return;
  use_.in_host.count -= one.on_host.numel();
  one.on_host.reset();
}

const Offload::Store::Lanes& Offload::Store::lanes(c10::Device device) {
  const auto found = lanes_.find(device);
  if (found != lanes_.end()) return found->second;
  const c10::impl::VirtualGuardImpl guard(device.type());
  return lanes_
      .emplace(device, Lanes{guard.getStreamFromGlobalPool(device, false),
                             guard.getStreamFromGlobalPool(device, false)})
      .first->second;
}

Offload::Offload(std::vector<Tensor> stays, const OffloadOptions& options)
    : store_(std::make_shared<Store>(std::move(stays), options)) {
  if (options.ahead < 0)
    throw UsageError(
        expectation("Offload", "ahead of 0 or more storages", std::to_string(options.ahead)));
}

libtorch::SavedTensorScope Offload::scope() {
  store_->begin();
  return libtorch::SavedTensorScope(
      [store = store_](const Tensor& tensor) { return store->pack(tensor); });
}

OffloadUse Offload::use() const {
  return store_->use();
}

}  // namespace headroom::nn
