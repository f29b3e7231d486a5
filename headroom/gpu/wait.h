// Waits until a card has enough usable memory; meanwhile reports the shortfall and the holders.
//
// A decision uses one fresh sample if no process has just ended on the card and the wait has not
// begun. Otherwise it needs two samples at least 200 ms apart that both have enough memory, because
// the driver returns the memory of an ended process in steps.
//
//   Sampler sampler(make_nvml_source(), {.keep_sampling = false});
//   WaitResult result = wait_for_gpu(sampler, {.need = 10_GiB}, {.timeout = Seconds(3600)});
#pragma once

#include <set>
#include <stop_token>

#include "headroom/gpu/sampler.h"
#include "headroom/gpu/select.h"

namespace headroom::gpu {

struct WaitProgress {
  const Selection& selection;  // of the last look: shortfall, holders, sentence
  const DeviceRequest& request;
  Seconds elapsed, timeout;
};

struct WaitOptions {
  Seconds timeout{0};    // 0: look once
  Seconds interval{30};  // between looks; each look samples the driver again
  // Called about once a second while waiting, from the waiting thread.
  std::function<void(const WaitProgress&)> progress = {};
  std::stop_token cancel = {};  // ends the wait; a sample under way finishes first (at most 3 s)
  Usable usable = usable_now;
  // Keeps only the cards that may be picked (see narrowed() in devices.h); without a function, all.
  std::function<Machine(Machine)> narrow = {};
  // Cards on which a process ended in the last 10 s, as far as known (see recent_ends.h).
  std::function<std::set<Uuid>(const Machine&)> recent_ends = {};
};

// If no card was picked, one of timed_out, cancelled and selection.cannot_be_met says why;
// selection.cannot_be_met also covers a machine without driver or cards.
struct WaitResult {
  Selection selection;
  Seconds waited{0};
  bool timed_out = false;
  bool cancelled = false;
};

[[nodiscard]] WaitResult wait_for_gpu(Sampler& sampler, const DeviceRequest& request,
                                      const WaitOptions& options);

}  // namespace headroom::gpu
