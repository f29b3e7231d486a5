// Waits until cards have room beside everybody's leases, and takes it: all cards or none.
//
// First come, first served, with bounded overtaking (queue.h): who needs little may go before a
// waiter whose need does not fit yet, but a waiter is passed at most kMostPasses times. Several
// cards are taken in one turn, so that nobody ever holds one while he waits for another.
//
// Nothing is decided on data older than 2 s. After a wait the room must have been free on two
// samples 200 ms apart, for memory comes back in steps; where it was free all along and only
// reserved, the end of the reservation is enough.
//
//   gpu::Sampler sampler(steady(gpu::make_source(devices)), {.keep_sampling = false});
//   Acquired got = acquire(directory, sampler, {.need = 10_GiB}, {.timeout = Seconds(3600)},
//   "a.py"); if (!got.lease) say(got.wait.selection.sentence);
//
// Threads: everything happens in the caller's.
#pragma once

#include <optional>
#include <string>

#include "headroom/gpu/wait.h"
#include "headroom/lease/directory.h"
#include "headroom/lease/lease.h"
#include "headroom/lease/steady_source.h"

namespace headroom::lease {

struct Acquired {
  std::optional<Lease> lease;  // empty: timed out, cancelled or hopeless; `wait` says which
  gpu::WaitResult wait;        // what was picked, or why nothing was
};

enum class Amount {
  needed,      // request.need on each card
  all_usable,  // all that is usable on the chosen cards, at least request.need
};

// `options` as for gpu::wait_for_gpu; its `usable` is narrowed by the leases and by who came first.
// The sampler's source must be steady (steady_source.h). Cards that another try has shown to be too
// small are left out by `options.narrow`.
// Throws WriteError if nothing can be written in the folder, and BusyError if its turn never came.
[[nodiscard]] Acquired acquire(const Directory& directory, gpu::Sampler& sampler,
                               const gpu::DeviceRequest& request, const gpu::WaitOptions& options,
                               const std::string& command, Amount amount = Amount::needed);

}  // namespace headroom::lease
