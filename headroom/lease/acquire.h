// Waits until cards have enough memory beside all leases, and leases it: all cards or none.
//
// First come, first served, with bounded overtaking (queue.h): a small request may go before a
// waiter whose request does not fit yet, but a waiter is passed at most kMostPasses times. Several
// cards are leased in one turn, so no job holds one card while it waits for another.
//
// No decision rests on data older than 2 s. After a wait the memory must be free in two samples 200
// ms apart, because it comes back in steps; memory that was free all along and only reserved needs
// one sample.
//
//   gpu::Sampler sampler(steady(gpu::make_source(devices)), {.keep_sampling = false});
//   const gpu::WaitOptions patience{.timeout = Seconds(3600)};
//   Acquired got = acquire(directory, sampler, {.need = 10_GiB}, patience, "a.py");
//   if (!got.lease) say(got.wait.selection.sentence);
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
  std::optional<Lease> lease;  // std::nullopt if not granted; `wait` says why
  gpu::WaitResult wait;        // the cards that were picked, or the reason for none
};

enum class Amount {
  needed,      // request.need on each card
  all_usable,  // all usable memory of the chosen cards, at least request.need
};

// `options` as for gpu::wait_for_gpu; leases and earlier waiters reduce its `usable`. The sampler's
// source must be steady (steady_source.h). `options.narrow` can leave out cards that another try
// showed to be too small. Throws WriteError if the folder cannot be written, and BusyError if it
// got no turn.
[[nodiscard]] Acquired acquire(const Directory& directory, gpu::Sampler& sampler,
                               const gpu::DeviceRequest& request, const gpu::WaitOptions& options,
                               const std::string& command, Amount amount = Amount::needed);

}  // namespace headroom::lease
