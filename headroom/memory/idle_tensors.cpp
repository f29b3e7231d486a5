#include "headroom/memory/idle_tensors.h"

#include <map>
#include <utility>

#include "headroom/libtorch/sleeper.h"
#include "headroom/libtorch/streams.h"
#include "headroom/memory/detail/mover.h"
#include "headroom/memory/device_memory.h"
#include "headroom/memory/saved_storage.h"

namespace headroom::memory {

using at::Tensor;

struct detail::IdleState {
  IdleState(Bytes smallest_size, bool pinned, std::shared_ptr<WaitingBooks> its)
      : smallest(smallest_size), mover(pinned, true), books(std::move(its)) {}
  const Bytes smallest;
  Mover mover;
  const std::shared_ptr<WaitingBooks> books;
  // Guarded by the books' lock:
  std::vector<c10::weak_intrusive_ptr<libtorch::Sleeper>> all;
  // What had to leave: it leaves as soon as it is idle again.
  std::map<const c10::StorageImpl*, c10::weak_intrusive_ptr<c10::StorageImpl>> left_before;

  [[nodiscard]] bool has_left_before(const Tensor& tensor) {
    const auto found = left_before.find(storage_of(tensor));
    if (found == left_before.end()) return false;
    if (!found->second.expired()) return true;
    left_before.erase(found);
    return false;
  }
};

namespace {

// What an idle tensor carries; so do the tensors that were made of it without an operator, which
// share its storage.
class Idle final : public libtorch::Sleeper {
 public:
  Idle(std::shared_ptr<detail::IdleState> state, const Tensor& tensor, double needed)
      : state_(std::move(state)),
        needed_(needed),
        storage_(tensor.storage().getWeakStorageImpl()),
        device_(tensor.device()),
        size_{static_cast<std::int64_t>(tensor.storage().nbytes())},
        home_(libtorch::current_stream(device_)) {}
  ~Idle() override {
    const WaitingBooks::Lock lock(*state_->books);
    forget_copy();
  }

  [[nodiscard]] c10::Device device() const { return device_; }

  // Call these with the books' lock held.
  [[nodiscard]] bool may_leave() const {
    if (is_away() || is_awake_) return false;
    const auto storage = storage_.lock();
    return storage && holders(c10::Storage(storage)) == 3;  // the tensor, and two here
  }
  bool leave(HostPool::Lock lock) {
    if (!may_leave() || !state_->books->has_room(size_)) return false;
    const c10::Storage storage(storage_.lock());
    state_->left_before.insert_or_assign(storage.unsafeGetStorageImpl(),
                                         storage.getWeakStorageImpl());
    copy_ = state_->mover.out(storage, home_, lock);
    copy_.left->block(home_);
    storage.unsafeGetStorageImpl()->set_data_ptr_noswap(c10::DataPtr(nullptr, device_));
    state_->books->left(device_, size_);
    return true;
  }
  [[nodiscard]] Movable movable(c10::intrusive_ptr<libtorch::Sleeper> self) {
    return {.address = memory_of(device_).address_of(c10::Storage(storage_.lock())),
            .size = size_,
            .needed = needed_,
            .leave = [this, self = std::move(self)] {
              const WaitingBooks::Lock lock(*state_->books);
              return leave(HostPool::Lock::kept_pages);
            }};
  }

  // Its memory is back, and it is no longer idle.
  void wake() override {
    const WaitingBooks::Lock lock(*state_->books);
    if (is_away()) {
      auto [memory, back] = state_->mover.in(copy_, device_);
      back->block(libtorch::current_stream(device_));
      storage_.lock()->set_data_ptr_noswap(
          std::move(memory.unsafeGetStorageImpl()->_mutable_data_ptr_no_checks()));
      forget_copy();
    }
    is_awake_ = true;
  }

 private:
  [[nodiscard]] bool is_away() const { return copy_.buffer.defined(); }
  void forget_copy() {
    if (is_away()) state_->books->came_back(device_, size_);
    copy_ = {};
  }

  const std::shared_ptr<detail::IdleState> state_;
  const double needed_;
  const c10::weak_intrusive_ptr<c10::StorageImpl> storage_;
  const c10::Device device_;
  const Bytes size_;
  const c10::Stream home_;
  detail::HostCopy copy_;  // empty while the memory is on its device
  bool is_awake_ = false;
};

}  // namespace

IdleTensors::IdleTensors(Bytes smallest, bool pinned, std::shared_ptr<WaitingBooks> books)
    : state_(std::make_shared<detail::IdleState>(smallest, pinned, std::move(books))) {}

IdleTensors::~IdleTensors() = default;

void IdleTensors::set_idle(const std::vector<Tensor>& tensors, double needed) {
  const WaitingBooks::Lock lock(*state_->books);
  auto& all = state_->all;
  std::erase_if(all, [](const auto& one) { return one.expired(); });
  for (const Tensor& tensor : tensors) {
    if (!tensor.defined() || tensor.is_cpu() || !has_plain_storage(tensor) ||
        !libtorch::can_sleep(tensor) ||
        static_cast<std::int64_t>(tensor.storage().nbytes()) < state_->smallest.count)
      continue;
    const auto idle = c10::make_intrusive<Idle>(state_, tensor, needed);
    all.emplace_back(idle);
    libtorch::put_to_sleep(tensor, idle);
    if (state_->has_left_before(tensor)) idle->leave(HostPool::Lock::new_pages);
  }
}

void IdleTensors::want(const std::vector<Tensor>& tensors) {
  for (const Tensor& tensor : tensors) libtorch::wake(tensor);
}

void IdleTensors::keep(Bytes size) {
  const WaitingBooks::Lock lock(*state_->books);
  for (auto one = state_->left_before.begin(); one != state_->left_before.end(); ++one) {
    const auto storage = one->second.lock();
    if (storage && static_cast<std::int64_t>(storage->nbytes()) > size.count) continue;
    state_->left_before.erase(one);
    return;
  }
}

std::vector<Movable> IdleTensors::movable(c10::Device device) {
  std::vector<Movable> found;
  const WaitingBooks::Lock lock(*state_->books);
  for (const auto& weak : state_->all) {
    const auto idle = weak.lock();
    if (!idle) continue;
    auto& one = static_cast<Idle&>(*idle);
    if (one.device() == device && one.may_leave()) found.push_back(one.movable(idle));
  }
  return found;
}

}  // namespace headroom::memory
