// Memory of a device that may wait on the host, and the books of all that does.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Storage.h>

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "headroom/base/bytes.h"

namespace headroom::memory {

struct Movable {
  std::uint64_t address = 0;  // on its device, as in a snapshot
  Bytes size;
  double needed = 0;            // when: larger is later
  std::int64_t place = -1;      // among what its forward pass saved; -1 for others
  std::function<bool()> leave;  // false if it may not go any more, or the host has no room
};

struct WaitingUse {
  Bytes waiting;            // off their device now
  Bytes peak_waiting;       // since the books were opened
  Bytes moved_bytes;        // that left a device
  std::int64_t moved = 0;   // storages that left a device
  std::int64_t stayed = 0;  // storages that the budget had no room for
};

// Shared by all whose memory waits together. Lock it by WaitingBooks::Lock.
class WaitingBooks {
 public:
  class Lock {
   public:
    explicit Lock(WaitingBooks& books);
    ~Lock();
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

   private:
    WaitingBooks& books_;
  };

  std::optional<Bytes> budget;  // of host memory or of a file; std::nullopt: no limit
  WaitingUse use;
  std::map<c10::DeviceIndex, Bytes> waiting_of;  // each card's part of use.waiting
  // Allocated bytes of a card from which on requests may be refused; of cards that refused one.
  std::map<c10::DeviceIndex, Bytes> full_at;

  [[nodiscard]] bool has_room(Bytes size);
  void left(c10::Device device, Bytes size);
  void came_back(c10::Device device, Bytes size);
  // A storage that nothing needs: its memory is given back now. The object itself ends when the
  // lock is open: Python's side of it may have to wait for the interpreter.
  void bury(c10::Storage& storage);

 private:
  // Recursive: a waiting storage is freed by its last user, under this lock or not, and a request
  // made under it may be refused, which moves other storages.
  std::recursive_mutex mutex_;
  int depth_ = 0;
  std::vector<c10::Storage> buried_;
};

}  // namespace headroom::memory
