// The memory that a job was seen to use, sample by sample: on its cards from the driver, on the
// host from /proc. Samples miss peaks in between; the figures of an error message (asked, free)
// supplement them.
#pragma once

#include <sys/types.h>

#include <deque>
#include <optional>
#include <set>
#include <vector>

#include "headroom/gpu/machine.h"
#include "headroom/supervise/host_use.h"

namespace headroom::supervise {

struct CardUse {
  gpu::Uuid card;
  int index = 0;
  Bytes total, used;  // used by all processes
  Bytes by_job;       // where the driver names processes
  // Other processes, and memory of no known process.
  [[nodiscard]] Bytes by_others() const { return used - by_job; }
};

struct UsageSample {
  Clock::time_point when;
  std::vector<CardUse> cards;
  Bytes host;
};

class Usage {
 public:
  // Watches these cards. Keeps the last `keep` samples, about one per second.
  explicit Usage(std::set<gpu::Uuid> cards, std::size_t keep = 600);

  // `machine` is the last sample, `pids` are the job's processes now.
  void note(const gpu::Machine& machine, const std::vector<pid_t>& pids);

  [[nodiscard]] const std::deque<UsageSample>& samples() const { return samples_; }
  [[nodiscard]] bool watches(const gpu::Uuid& card) const { return cards_.contains(card); }
  [[nodiscard]] const gpu::Machine& last_machine() const { return last_machine_; }

  // The most that the job used on one card; std::nullopt if it was never seen on one.
  [[nodiscard]] std::optional<Bytes> card_peak() const { return card_peak_; }
  // The highest use of host memory relative to the limit, with that limit.
  [[nodiscard]] const std::optional<HostUse>& host_peak() const { return host_peak_; }

  // The last time that a card of the job was active. Cards that report no utilisation count as
  // active.
  [[nodiscard]] Clock::time_point last_activity() const { return last_activity_; }

 private:
  void note_host(const HostUse& now);

  std::set<gpu::Uuid> cards_;
  std::size_t keep_;
  std::deque<UsageSample> samples_;
  gpu::Machine last_machine_;
  std::optional<Bytes> card_peak_;
  std::optional<HostUse> host_peak_;
  Clock::time_point last_activity_ = Clock::now();
};

}  // namespace headroom::supervise
