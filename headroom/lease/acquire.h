// Waits until cards have room beside everybody's leases, and takes it: all cards or none.
//
// First come, first served, with bounded overtaking: who needs little may go before a waiter whose
// need does not fit yet, but a waiter is passed at most kMostPasses times.
//
//   gpu::Sampler sampler(..., {.keep_sampling = false});
//   Acquired got = acquire(directory, sampler, {.need = 10_GiB}, {.timeout = Seconds(3600)});
//   if (!got.lease) say(got.wait.selection.sentence);
#pragma once

#include <optional>

#include "headroom/gpu/wait.h"
#include "headroom/lease/directory.h"
#include "headroom/lease/lease.h"

namespace headroom::lease {

inline constexpr int kMostPasses = 8;

struct Acquired {
  std::optional<Lease> lease;  // empty: timed out, cancelled or hopeless; `wait` says which
  gpu::WaitResult wait;        // what was picked, or why nothing was
};

// `options` as for gpu::wait_for_gpu; its `usable` is narrowed by the leases and by who came first.
[[nodiscard]] Acquired acquire(const Directory& directory, gpu::Sampler& sampler,
                               const gpu::DeviceRequest& request, const gpu::WaitOptions& options,
                               const std::string& command);

}  // namespace headroom::lease
