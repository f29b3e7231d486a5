// Runs one try of a job, watches it to its end, and judges the end.
//
//   Try one = run_try(std::move(launch), place, [&] { return places.known(); }, orders, listener);
//   if (one.out_of_memory()) tries.push_back(one);
#pragma once

#include <functional>

#include "headroom/gpu/machine.h"
#include "headroom/job/job.h"
#include "headroom/supervise/orders.h"
#include "headroom/supervise/place.h"
#include "headroom/supervise/try.h"

namespace headroom::supervise {

// `cards` returns the last sample of the machine, without waiting.
[[nodiscard]] Try run_try(job::Launch launch, const Place& place,
                          const std::function<gpu::Machine()>& cards, const Orders& orders,
                          const Listener& listener);

}  // namespace headroom::supervise
