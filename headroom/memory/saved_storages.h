// The memory of tensors that autograd saved. A storage may wait on the host, or in a file, and
// comes back when the backward pass needs it. nn::Offload sends each away as it is saved;
// memory::Spill sends some, when memory runs out.
//
//   const auto saved = std::make_shared<SavedStorages>(SavedStorages::Options{});
//   const libtorch::SavedTensorScope scope([=](const at::Tensor& x) { return saved->pack(x); });
//
// A saved tensor moves with its whole storage, once, however many views of it are saved. These
// stay: what `stays` names and all views of it, small tensors, tensors that the budget has no room
// for, and tensors on the CPU. They are handed to the SavedTensorScope outside. The backward pass
// throws if a saved tensor was changed in place.
//
// On CUDA copies run on two streams beside the computation, which does not wait for them. For this
// `ahead` storages stay on the device a little longer, and as many come back a little earlier than
// needed. If the device has no memory for one that comes early, it comes when it is needed. The
// graph may run on several streams.
//
// Threads: call everything from any thread; stay() while no other thread packs.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Storage.h>

#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "headroom/base/bytes.h"
#include "headroom/libtorch/saved_tensors.h"
#include "headroom/memory/host_pool.h"
#include "headroom/memory/movable.h"

namespace headroom::memory {

namespace detail {
class BlockFile;
class Mover;
}  // namespace detail

class SavedStorages : public std::enable_shared_from_this<SavedStorages> {
 public:
  struct Options {
    Bytes smallest{std::int64_t{1} << 20};  // smaller storages stay
    std::optional<Bytes> budget = {};       // of host memory or of the file; std::nullopt: no limit
    bool pinned = true;                     // page-locked host memory
    int ahead = 2;                          // storages that leave late, or come back early
    std::filesystem::path directory = {};   // of the file; an empty path means host memory
    bool copies = true;  // false: memory moves and data is lost, for dry runs, which have none
    // Asked before one comes early; empty: the card itself is asked.
    std::function<bool(c10::Device, Bytes)> has_room = {};
  };
  // Throws WriteError if no file can be made in the directory.
  // With books that others share, `options.budget` is not used.
  explicit SavedStorages(const Options& options, std::shared_ptr<WaitingBooks> books = nullptr);
  ~SavedStorages();
  SavedStorages(const SavedStorages&) = delete;
  SavedStorages& operator=(const SavedStorages&) = delete;

  // Which tensors stay from now on.
  void stay(const std::vector<at::Tensor>& these);
  // Asked about each new storage, with its size and its place among those that this forward pass
  // saved on its device; if it does not leave now, it may leave later.
  using LeavesNow = std::function<bool(std::int64_t place, Bytes size)>;
  // Empty: the tensor stays as it is.
  [[nodiscard]] libtorch::Unpack pack(const at::Tensor& tensor, const LeavesNow& leaves_now);
  // Page-locks host memory for as much.
  void warm(Bytes enough);
  // Places count from 0 again, as those of a device do when no graph holds anything there.
  void begin_pass();
  // Those on this device that nothing but the graph holds.
  [[nodiscard]] std::vector<Movable> movable(c10::Device device);
  // Storages so far.
  [[nodiscard]] std::int64_t saved() const;
  [[nodiscard]] WaitingUse use() const;

 private:
  class Saved;
  std::shared_ptr<Saved> saved(const at::Tensor& tensor, const LeavesNow& leaves_now);
  void move_out(Saved& one, HostPool::Lock lock);
  void write(Saved& one);
  void let_go();
  bool leave(Saved& one);
  void move_in(Saved& one);
  void read(Saved& one);
  void start_to_read(Saved& one);
  c10::Storage storage_again(const std::shared_ptr<Saved>& one);
  void fetch_ahead(const std::shared_ptr<Saved>& of);
  bool try_to_move_in(Saved& one);
  void free_host(Saved& one);

  const Options options_;
  const std::unique_ptr<detail::BlockFile> file_;  // null: they wait in host memory
  const std::unique_ptr<detail::Mover> mover_;
  const std::shared_ptr<WaitingBooks> books_;  // their lock guards what follows
  std::set<const c10::StorageImpl*> staying_;
  std::map<const c10::StorageImpl*, std::weak_ptr<Saved>> known_;
  std::vector<std::weak_ptr<Saved>> in_order_;  // as they were saved
  std::int64_t orders_ = 0;                     // storages saved so far
  struct Pass {
    std::int64_t saved = 0;  // storages of this pass
    std::int64_t alive = 0;  // of any pass
  };
  std::map<c10::DeviceIndex, Pass> passes_;  // of devices that are not the CPU
  std::deque<std::weak_ptr<Saved>> leaving_;
};

}  // namespace headroom::memory
