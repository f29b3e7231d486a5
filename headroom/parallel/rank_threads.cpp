#include "headroom/parallel/rank_threads.h"

#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>
#include <ATen/autocast_mode.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include "headroom/base/error.h"

namespace headroom::parallel {

class RankThreads::Crew {
 public:
  // Returns when all threads wait for work. One that still began would hold LibTorch's locks, which
  // stay locked in a process that is forked now, as the one that prices plans is.
  explicit Crew(const std::vector<c10::Device>& devices)
      : running_(devices.size()), failures_(devices.size()) {
    try {
      for (std::size_t rank = 0; rank < devices.size(); ++rank)
        threads_.emplace_back([this, rank, device = devices[rank]] { work(rank, device); });
    } catch (...) {
      end();
      throw;
    }
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return running_ == 0; });
  }
  ~Crew() {
    end();
    at::set_num_threads(cpu_threads_);
  }
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  void run(const std::function<void(int)>& job) {
    const at::ThreadLocalState state;
    std::unique_lock lock(mutex_);
    job_ = &job;
    state_ = &state;
    running_ = threads_.size();
    ++round_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return running_ == 0; });
    job_ = nullptr;
    std::exception_ptr first;
    for (std::exception_ptr& failure : failures_) {
      if (!first) first = failure;
      failure = nullptr;
    }
    if (first) std::rethrow_exception(first);
  }

 private:
  void work(std::size_t rank, c10::Device device) {
    at::set_num_threads(std::max(1, cpu_threads_ / static_cast<int>(failures_.size())));
    at::autocast::set_autocast_cache_enabled(false);
    const c10::OptionalDeviceGuard guard(device.is_cpu() ? std::nullopt : std::optional(device));
    for (std::uint64_t done = 0;;) {
      {
        std::unique_lock lock(mutex_);
        if (--running_ == 0) changed_.notify_all();
        changed_.wait(lock, [&] { return ends_ || round_ != done; });
        if (ends_) return;
        done = round_;
      }
      try {
        const at::ThreadLocalStateGuard as_the_caller(*state_);
        (*job_)(static_cast<int>(rank));
      } catch (...) {
        failures_[rank] = std::current_exception();
      }
    }
  }

  void end() {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
      changed_.notify_all();
    }
    for (std::thread& thread : threads_) thread.join();
  }

  const int cpu_threads_ = at::get_num_threads();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t round_ = 0;
  std::size_t running_;  // threads that do not wait for work
  bool ends_ = false;
  const std::function<void(int)>* job_ = nullptr;
  const at::ThreadLocalState* state_ = nullptr;
  std::vector<std::exception_ptr> failures_;  // by rank
  std::vector<std::thread> threads_;
};

RankThreads::RankThreads(std::vector<c10::Device> devices) : devices_(std::move(devices)) {
  if (devices_.empty())
    throw UsageError(expectation("RankThreads", "a device for each rank", "none"));
  if (devices_.size() > 1) crew_ = std::make_unique<Crew>(devices_);
}
RankThreads::~RankThreads() = default;

int RankThreads::size() const {
  return static_cast<int>(devices_.size());
}

void RankThreads::run(const std::function<void(int)>& work) {
  if (crew_) return crew_->run(work);
  work(0);
}

}  // namespace headroom::parallel
