// Looks at the machine again and again in a thread of its own, so that neither a driver that hangs
// nor a slow disk stops the keys or the drawing.
//
//   Watcher watcher("auto", Seconds(1), [&] { wake.ring(); });
//   if (auto picture = watcher.latest()) draw(*picture);
//
// Threads: `tell` is called in the watcher's thread; the members may be called from any other.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "headroom/cli/core/top/picture.h"

namespace headroom::cli {

class Watcher {
 public:
  // `tell`: called for each new picture, and for a failure.
  Watcher(const std::string& gpus, Seconds interval, std::function<void()> tell);
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  // Null before the first one. If a look at the machine fails, the picture of before has a warning.
  // Rethrows the exception of a look if there is no earlier picture, or for a card that does not
  // exist.
  [[nodiscard]] std::shared_ptr<const Picture> latest() const;
  // Waits for the first one, at most `patience`.
  [[nodiscard]] std::shared_ptr<const Picture> first(Seconds patience) const;

 private:
  void work(const std::stop_token& stop);
  void keep(std::shared_ptr<const Picture> picture);
  void fail();
  void go_on_with(const std::shared_ptr<const Picture>& old, const std::string& why);
  [[nodiscard]] Picture look();

  const gpu::Devices devices_;
  const Seconds interval_;
  const std::function<void()> tell_;
  const ProcessTable processes_;
  gpu::Sampler sampler_;
  History history_;
  std::optional<gpu::CudaView> cuda_;  // once the driver has listed its cards

  mutable std::mutex guard_;
  mutable std::condition_variable changed_;
  std::shared_ptr<const Picture> latest_;
  std::exception_ptr failure_;
  std::jthread thread_;  // last: it uses all others
};

}  // namespace headroom::cli
