// Waits until a card has enough room, and tells meanwhile what is missing and who holds it.
//
// A decision rests on one fresh sample when nothing has just ended on the card and nobody waited;
// otherwise on two samples at least 200 ms apart that both have the room, because memory of a
// process that ended comes back in steps, and not at once.
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
  const Selection& selection;  // the last look: shortfall, holders, sentence
  const DeviceRequest& request;
  Seconds elapsed, timeout;
};

struct WaitOptions {
  Seconds timeout{0};    // 0: look once
  Seconds interval{30};  // between looks; each asks the driver anew
  // Called about once a second while waiting, from the waiting thread.
  std::function<void(const WaitProgress&)> progress = {};
  std::stop_token cancel = {};  // ends the wait within 50 ms
  Usable usable = usable_now;
  // Keeps the cards that may be taken at all (see narrowed() in devices.h); empty: all.
  std::function<Machine(Machine)> narrow = {};
  // Cards on which something ended in the last 10 s, as far as is known (see recent_ends.h).
  std::function<std::set<Uuid>(const Machine&)> recent_ends = {};
};

// Where nothing was picked, one of timed_out, cancelled and selection.hopeless says why: the last
// one also where there is no driver, or no card at all.
struct WaitResult {
  Selection selection;
  Seconds waited{0};
  bool timed_out = false;
  bool cancelled = false;
};

[[nodiscard]] WaitResult wait_for_gpu(Sampler& sampler, const DeviceRequest& request,
                                      const WaitOptions& options);

}  // namespace headroom::gpu
