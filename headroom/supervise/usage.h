// What a job was seen to use, sample by sample: of each of its cards through the driver, of the
// host through /proc. Peaks between two samples are missed; what the job itself prints at the end
// (asked, free) completes the picture.
#pragma once

#include <sys/types.h>

#include <deque>
#include <optional>
#include <set>
#include <vector>

#include "headroom/gpu/card.h"
#include "headroom/supervise/host_use.h"

namespace headroom::supervise {

struct CardUse {
  gpu::Uuid card;
  int index = 0;
  Bytes total, used;  // used by everybody
  Bytes by_job;       // as far as the driver names its processes
  // Not ours: other processes, and what nobody accounts for.
  [[nodiscard]] Bytes by_others() const { return used - by_job; }
};

struct UsageSample {
  Clock::time_point when;
  std::vector<CardUse> cards;
  Bytes host;
};

class Usage {
 public:
  // Of these cards. The last `keep` samples are kept, about one a second.
  explicit Usage(std::set<gpu::Uuid> cards, std::size_t keep = 600);

  // `machine` is the last that is known, `pids` the job's processes now.
  void note(const gpu::Machine& machine, const std::vector<pid_t>& pids);

  [[nodiscard]] const std::deque<UsageSample>& samples() const { return samples_; }
  [[nodiscard]] bool watches(const gpu::Uuid& card) const { return cards_.contains(card); }
  [[nodiscard]] const gpu::Machine& last_machine() const { return last_machine_; }

  // Most that the job used of one card (the card with the most); nothing if it never was seen
  // there.
  [[nodiscard]] std::optional<Bytes> card_peak() const { return card_peak_; }
  // The fullest moment of the host's memory, and the limit then.
  [[nodiscard]] const std::optional<HostUse>& host_peak() const { return host_peak_; }

  // Since when no card of the job did anything, as far as the driver tells. Cards that do not tell
  // are taken for busy.
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
