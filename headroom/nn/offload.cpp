#include "headroom/nn/offload.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <deque>
#include <future>
#include <map>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/libtorch/failure.h"
#include "headroom/libtorch/streams.h"
#include "headroom/nn/detail/block_file.h"
#include "headroom/nn/detail/saved_storage.h"

namespace headroom::nn {
namespace {

using at::Tensor;
using libtorch::current_stream;
using libtorch::order;

bool can_move(const Tensor& tensor) {
  return !tensor.is_cpu() && detail::has_plain_storage(tensor);
}

std::span<char> data_of(const Tensor& bytes) {
  return {static_cast<char*>(bytes.data_ptr()), static_cast<std::size_t>(bytes.numel())};
}

// The allocator does not give the memory out again before the present work of `stream` on it is
// done.
void record_use(const Tensor& tensor, const c10::Stream& stream) {
  const c10::impl::VirtualGuardImpl guard(stream.device_type());
  guard.recordDataPtrOnStream(tensor.storage().data_ptr(), stream);
}

}  // namespace

// The storages that wait. Copies out and copies in have a stream each on every device.
class Offload::Store : public std::enable_shared_from_this<Store> {
 public:
  Store(std::vector<Tensor> stays, const OffloadOptions& options)
      : options_(options), stays_(std::move(stays)) {
    if (!options.directory.empty() && options.copies) file_.emplace(options.directory);
  }

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
          content(tensor),
          device(tensor.device()),
          size(static_cast<std::int64_t>(tensor.storage().nbytes())),
          on_device(detail::whole_storage(tensor, at::kByte)),
          home(current_stream(device)),
          left(device.type()) {}
    ~Parked();
    Parked(const Parked&) = delete;
    Parked& operator=(const Parked&) = delete;

    const std::shared_ptr<Store> store;
    const detail::Content content;
    const c10::Device device;
    const std::int64_t size;    // bytes
    Tensor on_device, on_host;  // bytes
    c10::Stream home;           // has the memory on the device, and gets it back
    std::optional<detail::BlockFile::Block> in_file;
    c10::Event left;
    std::optional<c10::Event> back;
    std::future<void> transfer;  // between on_host and in_file, which are its own while it runs
  };
  struct Lanes {
    c10::Stream out, in;
  };

  std::shared_ptr<Parked> parked(const Tensor& tensor);
  void move_out(Parked& one);
  void write(Parked& one);
  void let_go(std::size_t still_leaving);
  void move_in(Parked& one);
  [[nodiscard]] Tensor host_buffer(std::int64_t size) const;
  void read(Parked& one) const;
  void start_to_read(Parked& one) const;
  Tensor host_copy(Parked& one);
  Tensor bytes_again(const std::shared_ptr<Parked>& one);
  void fetch_ahead(const std::shared_ptr<Parked>& of);
  bool try_to_move_in(Parked& one);
  void free_host(Parked& one);
  const Lanes& lanes(c10::Device device);

  const OffloadOptions options_;
  const std::vector<Tensor> stays_;
  std::optional<detail::BlockFile> file_;
  // Recursive: a waiting storage is freed by its last user, under this lock or not.
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
  staying_ = detail::storages_of(stays_);
}

// Its memory on the device may be given out at once, and a copy of it may still run.
Offload::Store::Parked::~Parked() {
  if (transfer.valid()) transfer.wait();
  try {
    if (on_device.defined()) (back ? *back : left).block(home);
  } catch (...) {  // the device is gone
  }
  const std::lock_guard lock(store->mutex_);
  store->free_host(*this);
}

libtorch::Unpack Offload::Store::pack(const Tensor& tensor) {
  const at::NoGradGuard no_grad;
  const std::shared_ptr<Parked> one = can_move(tensor) ? parked(tensor) : nullptr;
  if (!one) return detail::hand_on(tensor);
  return [one, geometry = detail::Geometry(tensor)] {
    const at::NoGradGuard no_graph;
    if (one->content.has_changed())
      throw UsageError(expectation("Offload", "saved tensors to stay the same until backward",
                                   "one that was changed in place",
                                   "an operator that makes a new "
                                   "tensor"));
    return geometry.in(one->store->bytes_again(one));
  };
}

// Null if the tensor stays on its device.
std::shared_ptr<Offload::Store::Parked> Offload::Store::parked(const Tensor& tensor) {
  const c10::StorageImpl* const storage = detail::storage_of(tensor);
  const auto size = static_cast<std::int64_t>(storage->nbytes());
  const std::lock_guard lock(mutex_);
  if (size == 0 || size < options_.smallest.count || staying_.contains(storage)) return nullptr;
  if (const auto found = known_.find(storage); found != known_.end()) {
    const std::shared_ptr<Parked> same = found->second.lock();
    if (same && same->content.is_of(tensor)) return same;
  }
  if (options_.budget && use_.waiting.count + size > options_.budget->count) {
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
  one.on_host = host_buffer(one.size);
  use_.waiting += Bytes{one.size};
  use_.peak_waiting = std::max(use_.peak_waiting, use_.waiting);
  const c10::Stream& out = lanes(one.device).out;
  order(current_stream(one.device), out);
  if (options_.copies) {
    const c10::StreamGuard on(out);
    one.on_host.copy_(one.on_device, /*non_blocking=*/true);
  }
  one.left.record(out);
  ++use_.moved;
  if (file_) write(one);
}

// If this fails, the host's copy stays.
void Offload::Store::write(Parked& one) {
  one.transfer = std::async(std::launch::async, [this, &one] {
    one.left.synchronize();
    one.in_file = file_->keep(data_of(one.on_host));
    one.on_host.reset();
  });
}

// Frees the device's memory of all but the last ones: the next computation waits until they have
// left, since it may get that memory.
void Offload::Store::let_go(std::size_t still_leaving) {
  while (leaving_.size() > still_leaving) {
    const std::shared_ptr<Parked> one = leaving_.front().lock();
    leaving_.pop_front();
    if (!one || one->back) continue;
    if (one->transfer.valid()) one->transfer.get();
    one->left.block(one->home);
    one->on_device.reset();
  }
}

// The memory comes from the current stream, where it is mostly used and freed.
void Offload::Store::move_in(Parked& one) {
  const c10::DeviceGuard on_its(one.device);
  const Tensor on_device = at::empty({one.size}, at::TensorOptions(one.device).dtype(at::kByte));
  const Tensor on_host = host_copy(one);
  const c10::Stream& in = lanes(one.device).in;
  order(current_stream(one.device), in);
  one.left.block(in);
  if (options_.copies) {
    const c10::StreamGuard on(in);
    on_device.copy_(on_host, /*non_blocking=*/true);
  }
  one.back.emplace(one.device.type());
  one.back->record(in);
  one.on_device = on_device;
  one.home = current_stream(one.device);
  free_host(one);
}

Tensor Offload::Store::host_buffer(std::int64_t size) const {
  const at::TensorOptions bytes(at::kByte);
  if (!options_.copies) return at::empty({size}, bytes.device(at::kMeta));
  return at::empty({size}, bytes.pinned_memory(options_.pinned));
}

void Offload::Store::read(Parked& one) const {
  const Tensor bytes = host_buffer(one.size);
  file_->read(*one.in_file, data_of(bytes));
  one.on_host = bytes;
}

void Offload::Store::start_to_read(Parked& one) const {
  if (one.on_device.defined() || one.transfer.valid() || !one.in_file) return;
  one.transfer = std::async(std::launch::async, [this, &one] { read(one); });
}

// A copy that failed to reach the file is still here. A read that failed is repeated.
Tensor Offload::Store::host_copy(Parked& one) {
  if (one.transfer.valid()) one.transfer.wait();
  if (!one.on_host.defined()) read(one);
  return one.on_host;
}

Tensor Offload::Store::bytes_again(const std::shared_ptr<Parked>& one) {
  const std::lock_guard lock(mutex_);
  if (!one->on_device.defined()) move_in(*one);
  const c10::Stream now = current_stream(one->device);
  if (one->back) one->back->block(now);
  if (now != one->home) record_use(one->on_device, now);
  fetch_ahead(one);
  return one->on_device;
}

// Those that were saved just before are needed next.
void Offload::Store::fetch_ahead(const std::shared_ptr<Parked>& of) {
  while (!in_order_.empty() && in_order_.back().expired()) in_order_.pop_back();
  const auto is_this = [&](const auto& one) { return one.lock() == of; };
  auto at = std::find_if(in_order_.rbegin(), in_order_.rend(), is_this);
  if (at == in_order_.rend()) return;
  int passed = 0;
  for (++at; at != in_order_.rend() && passed < 2 * options_.ahead; ++at) {
    const std::shared_ptr<Parked> next = at->lock();
    if (!next || next->device != of->device) continue;
    if (passed++ >= options_.ahead)
      start_to_read(*next);
    else if (!next->on_device.defined() && !try_to_move_in(*next))
      return;
  }
}

// False if there is no memory for it now.
bool Offload::Store::try_to_move_in(Parked& one) {
  try {
    move_in(one);
    return true;
  } catch (...) {
    if (!libtorch::is_out_of_memory(std::current_exception())) throw;
    return false;
  }
}

// Page-locked memory that is freed is not given out again before its copies have ended.
void Offload::Store::free_host(Parked& one) {
  if (!one.on_host.defined() && !one.in_file) return;
  use_.waiting -= Bytes{one.size};
  one.on_host.reset();
  if (one.in_file) file_->forget(*one.in_file);
  one.in_file.reset();
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
  if (options.smallest.count < 0 || (options.budget && options.budget->count < 0))
    throw UsageError(expectation("Offload", "sizes of 0 bytes or more", "a negative one"));
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
