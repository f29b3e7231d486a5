#include "headroom/memory/saved_storages.h"

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <future>
#include <span>
#include <utility>

#include "headroom/libtorch/failure.h"
#include "headroom/libtorch/streams.h"
#include "headroom/memory/detail/block_file.h"
#include "headroom/memory/detail/mover.h"
#include "headroom/memory/device_memory.h"
#include "headroom/memory/rescue.h"
#include "headroom/memory/saved_storage.h"

namespace headroom::memory {
namespace {

using at::Tensor;
using libtorch::current_stream;

std::span<char> data_of(const Tensor& bytes) {
  return {static_cast<char*>(bytes.data_ptr()), static_cast<std::size_t>(bytes.numel())};
}

// The allocator does not give the memory out again before the present work of `stream` on it is
// done.
void record_use(const c10::Storage& storage, const c10::Stream& stream) {
  const c10::impl::VirtualGuardImpl guard(stream.device_type());
  guard.recordDataPtrOnStream(storage.data_ptr(), stream);
}

}  // namespace

class SavedStorages::Saved {
 public:
  Saved(SavedStorages& its, const Tensor& tensor)
      : store(its.shared_from_this()),
        content(tensor),
        device(tensor.device()),
        size(static_cast<std::int64_t>(tensor.storage().nbytes())),
        order(its.orders_++),
        place(its.passes_[device.index()].saved++),
        on_device(tensor.storage()),
        home(current_stream(device)) {
    ++store->passes_[device.index()].alive;
  }
  // Its memory on the device may be given out at once, and a copy of it may still run.
  ~Saved() {
    if (transfer.valid()) transfer.wait();
    try {
      if (is_on_device() && back) back->block(home);
      if (is_on_device() && !back && on_host.left) on_host.left->block(home);
    } catch (...) {  // the device is gone
    }
    const WaitingBooks::Lock lock(*store->books_);
    store->free_host(*this);
    --store->passes_[device.index()].alive;
  }
  Saved(const Saved&) = delete;
  Saved& operator=(const Saved&) = delete;

  [[nodiscard]] bool is_on_device() const { return on_device.unsafeGetStorageImpl() != nullptr; }

  const std::shared_ptr<SavedStorages> store;
  const Content content;
  const c10::Device device;
  const std::int64_t size;   // bytes
  const std::int64_t order;  // as they were saved
  const std::int64_t place;  // in its pass, on its device
  c10::Storage on_device;    // null while it waits
  detail::HostCopy on_host;
  c10::Stream home;  // has the memory on the device, and gets it back
  std::optional<detail::BlockFile::Block> in_file;
  std::shared_ptr<c10::Event> back;
  std::future<void> transfer;  // between on_host and in_file, which are its own while it runs
};

SavedStorages::SavedStorages(const Options& options, std::shared_ptr<WaitingBooks> books)
    : options_(options),
      file_(options.directory.empty() || !options.copies
                ? nullptr
                : std::make_unique<detail::BlockFile>(options.directory)),
      mover_(std::make_unique<detail::Mover>(options.pinned, options.copies)),
      books_(books ? std::move(books) : std::make_shared<WaitingBooks>()) {
  if (!books_->budget) books_->budget = options.budget;
}

SavedStorages::~SavedStorages() = default;

void SavedStorages::stay(const std::vector<Tensor>& these) {
  const WaitingBooks::Lock lock(*books_);
  staying_ = storages_of(these);
}

void SavedStorages::begin_pass() {
  const WaitingBooks::Lock lock(*books_);
  for (auto& [device, pass] : passes_) pass.saved = 0;
}

WaitingUse SavedStorages::use() const {
  const WaitingBooks::Lock lock(*books_);
  return books_->use;
}

void SavedStorages::warm(Bytes enough) {
  if (options_.pinned && options_.copies) mover_->pool().warm(enough);
}

std::int64_t SavedStorages::saved() const {
  const WaitingBooks::Lock lock(*books_);
  return orders_;
}

// ---- Saving ----

libtorch::Unpack SavedStorages::pack(const Tensor& tensor, const LeavesNow& leaves_now) {
  const std::shared_ptr<Saved> one =
      !tensor.is_cpu() && has_plain_storage(tensor) ? saved(tensor, leaves_now) : nullptr;
  if (!one) return {};
  return [one, geometry = Geometry(tensor), origin = origin_of(tensor)] {
    Tensor again = geometry.in(one->store->storage_again(one));
    one->content.check(again, origin);
    return again;
  };
}

// Null if the tensor stays on its device.
std::shared_ptr<SavedStorages::Saved> SavedStorages::saved(const Tensor& tensor,
                                                           const LeavesNow& leaves_now) {
  const c10::StorageImpl* const storage = storage_of(tensor);
  const auto size = static_cast<std::int64_t>(storage->nbytes());
  const WaitingBooks::Lock lock(*books_);
  if (size == 0 || size < options_.smallest.count || staying_.contains(storage)) return nullptr;
  if (const auto found = known_.find(storage); found != known_.end()) {
    const std::shared_ptr<Saved> same = found->second.lock();
    if (same && same->content.is_of(tensor)) return same;
  }
  Pass& pass = passes_[tensor.device().index()];
  if (pass.alive == 0) pass.saved = 0;
  const bool leaves = leaves_now(pass.saved, Bytes{size});
  if (leaves && !books_->has_room(Bytes{size})) return nullptr;
  const auto one = std::make_shared<Saved>(*this, tensor);
  if (leaves) move_out(*one, HostPool::Lock::new_pages);
  if (in_order_.size() == in_order_.capacity()) {
    const auto is_gone = [](const auto& other) { return other.expired(); };
    std::erase_if(in_order_, is_gone);
    std::erase_if(known_, [&](const auto& other) { return is_gone(other.second); });
    in_order_.reserve(2 * in_order_.size() + 64);
  }
  known_[storage] = one;
  in_order_.push_back(one);
  if (leaves) leaving_.push_back(one);
  let_go();
  return one;
}

void SavedStorages::move_out(Saved& one, HostPool::Lock lock) {
  one.on_host = mover_->out(one.on_device, one.home, lock);
  books_->left(one.device, Bytes{one.size});
  if (file_) write(one);
}

// If this fails, the host's copy stays.
void SavedStorages::write(Saved& one) {
  one.transfer = std::async(std::launch::async, [this, &one] {
    one.on_host.left->synchronize();
    one.in_file = file_->keep(data_of(one.on_host.buffer.bytes()));
    one.on_host.buffer = {};
  });
}

// Frees the device's memory of those that were saved before the last ones: the next computation
// waits until they have left, since it may get that memory.
void SavedStorages::let_go() {
  while (!leaving_.empty()) {
    const std::shared_ptr<Saved> one = leaving_.front().lock();
    if (one && orders_ - one->order <= options_.ahead) return;
    leaving_.pop_front();
    if (!one || one->back || !one->is_on_device()) continue;
    if (one->transfer.valid()) one->transfer.get();
    one->on_host.left->block(one->home);
    books_->bury(one->on_device);
  }
}

// ---- Leaving when memory runs out ----

std::vector<Movable> SavedStorages::movable(c10::Device device) {
  std::vector<Movable> all;
  const WaitingBooks::Lock lock(*books_);
  for (const auto& weak : in_order_) {
    const std::shared_ptr<Saved> one = weak.lock();
    if (!one || one->device != device || !one->is_on_device() || holders(one->on_device) != 1)
      continue;
    all.push_back({.address = memory_of(device).address_of(one->on_device),
                   .size = Bytes{one->size},
                   .needed = -static_cast<double>(one->order),
                   .place = one->place,
                   .leave = [this, one] { return leave(*one); }});
  }
  return all;
}

// The request that was refused may get its memory: the computation waits until it has left.
bool SavedStorages::leave(Saved& one) {
  const WaitingBooks::Lock lock(*books_);
  if (!one.is_on_device() || holders(one.on_device) != 1) return false;
  const bool is_leaving = one.on_host.left && !one.back;
  if (!is_leaving && !books_->has_room(Bytes{one.size})) return false;
  if (one.back) {
    one.back->block(one.home);
    one.back.reset();
  }
  if (!is_leaving) move_out(one, HostPool::Lock::kept_pages);
  if (one.transfer.valid()) one.transfer.get();
  one.on_host.left->block(one.home);
  books_->bury(one.on_device);
  return true;
}

// ---- Coming back ----

// The memory comes from the current stream, where it is mostly used and freed.
void SavedStorages::move_in(Saved& one) {
  if (one.transfer.valid()) one.transfer.wait();
  // A copy that failed to reach the file is still here. A read that failed is repeated.
  if (!one.on_host.buffer.defined()) read(one);
  auto [storage, back] = mover_->in(one.on_host, one.device);
  one.on_device = storage;
  one.back = back;
  one.home = current_stream(one.device);
  free_host(one);
}

void SavedStorages::read(Saved& one) {
  HostPool::Buffer buffer = mover_->pool().take(
      one.size, options_.pinned ? HostPool::Lock::new_pages : HostPool::Lock::never);
  if (const auto& before = buffer.used_before()) before->synchronize();
  file_->read(*one.in_file, data_of(buffer.bytes()));
  one.on_host.buffer = std::move(buffer);
}

void SavedStorages::start_to_read(Saved& one) {
  if (one.is_on_device() || one.transfer.valid() || !one.in_file) return;
  one.transfer = std::async(std::launch::async, [this, &one] { read(one); });
}

c10::Storage SavedStorages::storage_again(const std::shared_ptr<Saved>& one) {
  const WaitingBooks::Lock lock(*books_);
  if (!one->is_on_device()) move_in(*one);
  const c10::Storage storage = one->on_device;  // from here on it does not leave
  const c10::Stream now = current_stream(one->device);
  if (one->back) one->back->block(now);
  if (now != one->home) record_use(storage, now);
  if (options_.ahead > 0 && books_->use.waiting > Bytes{}) fetch_ahead(one);
  return storage;
}

// Those that were saved just before are needed next.
void SavedStorages::fetch_ahead(const std::shared_ptr<Saved>& of) {
  while (!in_order_.empty() && in_order_.back().expired()) in_order_.pop_back();
  const auto is_this = [&](const auto& one) { return one.lock() == of; };
  auto at = std::find_if(in_order_.rbegin(), in_order_.rend(), is_this);
  if (at == in_order_.rend()) return;
  int passed = 0;
  for (++at; at != in_order_.rend() && passed < 2 * options_.ahead; ++at) {
    const std::shared_ptr<Saved> next = at->lock();
    if (!next || next->device != of->device) continue;
    if (passed++ >= options_.ahead)
      start_to_read(*next);
    else if (!next->is_on_device() && !try_to_move_in(*next))
      return;
  }
}

// False if there is no memory for it now.
bool SavedStorages::try_to_move_in(Saved& one) {
  if (options_.has_room && !options_.has_room(one.device, Bytes{one.size})) return false;
  const WithoutRescue only_wanted;
  try {
    move_in(one);
    return true;
  } catch (...) {
    if (!libtorch::is_out_of_memory(std::current_exception())) throw;
    return false;
  }
}

void SavedStorages::free_host(Saved& one) {
  if (!one.on_host.buffer.defined() && !one.in_file) return;
  books_->came_back(one.device, Bytes{one.size});
  one.on_host.buffer = {};
  if (one.in_file) file_->forget(*one.in_file);
  one.in_file.reset();
}

}  // namespace headroom::memory
