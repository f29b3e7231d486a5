// A box of simulated cards that several processes of this machine use at the same time, named as in
// `sim:8x24GiB@lab`. Each shows the others what it holds of every card, through a file
// (docs/formats/simulated-box.md). When a process ends, however it ends, its share is free.
//
//   SharedBox box(gpu::parse_simulated("8x24GiB@lab"));
//   const SharedBox::Turn turn(box);  // the others wait
//   if (box.used_by_others(0) + mine + more <= total) box.publish(0, mine + more);
//
// Threads: those of a process take turns like processes. A process that ends in its turn ends the
// turn. A forked child does not take part: the others never see what it does with its parent's box.
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
  // file is not a box's, WriteError if its folder is not writable.
  explicit SharedBox(gpu::SimulatedBox box);
  ~SharedBox();  // leaves: this process's share is free
  SharedBox(const SharedBox&) = delete;
  SharedBox& operator=(const SharedBox&) = delete;

  // While it lives, no other process or thread has a turn. Costs a few system calls; the file is
  // read only if another process wrote it, or ended, since the turn before.
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

  // Call both only in a turn.
  [[nodiscard]] Bytes used_by_others(int card) const {
    return others_[static_cast<std::size_t>(card)];
  }
  void publish(int card, Bytes used);

 private:
  // Tells one version of the file from the next: inode and time change when a file is renamed into
  // place; `writes` differs if both happen to be the same.
  struct Version {
    ino_t file = 0;
    std::int64_t changed_ns = 0;
    std::uint64_t writes = 0;  // counted in the lock file
    bool operator==(const Version&) const = default;
  };

  [[nodiscard]] bool is_ours() const;
  [[nodiscard]] Version version() const;
  [[nodiscard]] bool neighbour_ended();
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
  std::mutex mutex_;  // held during a turn
  Version seen_;
  std::vector<gpu::BoxShare> shares_;  // of the other processes that live
  std::vector<pollfd> neighbours_;     // one descriptor each, readable once the process has ended
  bool all_watched_ = true;            // false: the system gave no descriptor for some
  std::array<Bytes, gpu::kMostSimulatedCards> others_{};
  std::array<Bytes, gpu::kMostSimulatedCards> ours_{};
};

}  // namespace headroom::sim
