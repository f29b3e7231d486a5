#include "headroom/memory/movable.h"

#include <algorithm>
#include <utility>

#include "headroom/memory/saved_storage.h"

namespace headroom::memory {

WaitingBooks::Lock::Lock(WaitingBooks& books) : books_(books) {
  books_.mutex_.lock();
  ++books_.depth_;
}

WaitingBooks::Lock::~Lock() {
  std::vector<c10::Storage> ended;
  if (--books_.depth_ == 0) ended.swap(books_.buried_);
  books_.mutex_.unlock();
}

bool WaitingBooks::has_room(Bytes size) {
  if (!budget || use.waiting + size <= *budget) return true;
  ++use.stayed;
  return false;
}

void WaitingBooks::left(c10::Device device, Bytes size) {
  use.waiting += size;
  waiting_of[device.index()] += size;
  use.peak_waiting = std::max(use.peak_waiting, use.waiting);
  use.moved_bytes += size;
  ++use.moved;
}

void WaitingBooks::came_back(c10::Device device, Bytes size) {
  use.waiting -= size;
  waiting_of[device.index()] -= size;
}

void WaitingBooks::bury(c10::Storage& storage) {
  if (storage.unsafeGetStorageImpl() == nullptr) return;
  if (holders(storage) == 1) storage.unsafeGetStorageImpl()->release_resources();
  buried_.push_back(std::exchange(storage, c10::Storage()));
}

}  // namespace headroom::memory
