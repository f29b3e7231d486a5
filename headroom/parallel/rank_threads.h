// A thread for each rank of this process, with its device: the rank's work always runs on the same
// one.
//
//   parallel::RankThreads threads({box.device(0), box.device(1)});
//   threads.run([&](int rank) { ... });     // on all threads at once; returns when all have
//
// With one rank, run() calls the function on the caller's thread.
//
// On a rank's thread its device is the current one, and autograd's state (no_grad, autocast,
// observers of operators) is that of the caller of run(). Two things of a process are set for the
// ranks:
// - Autocast's cast cache is off. It is one for all threads, and a thread that leaves autocast
//   empties it for the others: a rank's memory would depend on timing.
// - CPU kernels use an equal share of the caller's threads, also in backward passes that start
//   autograd's threads later. Every thread has an OpenMP pool of its own, and full ones would take
//   the cores from each other. The destructor gives the process its number back.
//
// Threads: run() from one thread at a time.
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <memory>
#include <vector>

namespace headroom::parallel {

class RankThreads {
 public:
  explicit RankThreads(std::vector<c10::Device> devices);
  ~RankThreads();
  RankThreads(const RankThreads&) = delete;
  RankThreads& operator=(const RankThreads&) = delete;

  [[nodiscard]] int size() const;
  // Rethrows the exception of the lowest rank that threw, when all have ended. A rank that throws
  // while others wait for it in a collective leaves them waiting: catch before.
  void run(const std::function<void(int rank)>& work);

 private:
  class Crew;
  std::vector<c10::Device> devices_;
  std::unique_ptr<Crew> crew_;  // null with one rank
};

}  // namespace headroom::parallel
