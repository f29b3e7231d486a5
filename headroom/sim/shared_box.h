// A box of simulated cards that several processes of this machine use at the same time, as
// `sim:8x24GiB@lab` names it: each tells the others what it holds of every card, through a file
// (docs/formats/simulated-box.md). What a process held that is gone, however it ended, is free.
//
//   SharedBox box(gpu::parse_simulated("8x24GiB@lab"));
//   const SharedBox::Turn turn(box);  // the others wait
//   if (box.used_by_others(0) + mine + more <= total) box.publish(0, mine + more);
//
// Threads: those of a process take turns like processes. A process that ends in its turn ends it. A
// forked child is somebody else: what it does with a box of its parent's is not told to anybody.
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <vector>

#include "headroom/base/process.h"
#include "headroom/gpu/simulated.h"

namespace headroom::sim {

class SharedBox {
 public:
  // Joins, holding nothing. Throws UsageError if the box exists with other cards, InputError if its
  // file is none, WriteError if nothing can be written beside it.
  explicit SharedBox(gpu::SimulatedBox box);
  ~SharedBox();  // leaves: what this process held is free
  SharedBox(const SharedBox&) = delete;
  SharedBox& operator=(const SharedBox&) = delete;

  // While it lives, no other process or thread has one. Costs a few system calls; the file is read
  // only if somebody wrote it, or died, since the turn before.
  class Turn {
   public:
    explicit Turn(SharedBox& box);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    SharedBox& box_;
    std::lock_guard<std::mutex> lock_;
  };

  // Both in a turn.
  [[nodiscard]] Bytes used_by_others(int card) const {
    return others_[static_cast<std::size_t>(card)];
  }
  void publish(int card, Bytes used);

 private:
  // By what a file that was renamed into place shows that it is another one; by `writes` if all of
  // that is the same again.
  struct Version {
    ino_t file = 0;
    std::int64_t changed_ns = 0;
    std::uint64_t writes = 0;  // counted in the lock's file
    bool operator==(const Version&) const = default;
  };

  [[nodiscard]] bool is_ours() const;
  [[nodiscard]] Version version() const;
  [[nodiscard]] bool somebody_died();
  void look();
  void read();
  void write();
  void watch_neighbours();
  void forget_neighbours();

  const gpu::SimulatedBox box_;
  const std::filesystem::path path_;
  const ProcessIdentity self_;
  const ProcessTable processes_;
  int lock_file_ = -1;
  std::mutex mutex_;  // of the turn
  Version seen_;
  std::vector<gpu::BoxShare> shares_;  // of the others that live
  std::vector<pollfd> neighbours_;     // a descriptor each, readable when the process has ended
  bool all_watched_ = true;            // false: of some the system gives none
  std::array<Bytes, gpu::kMostSimulatedCards> others_{};
  std::array<Bytes, gpu::kMostSimulatedCards> ours_{};
};

}  // namespace headroom::sim
