// The loop of supervise(): finds a place, runs a try in it, and does what next_step() says, until
// the run has ended. Places and tries come from outside, so that a test can script them.
#pragma once

#include <functional>

#include "headroom/edit/knobs.h"
#include "headroom/job/job.h"
#include "headroom/supervise/orders.h"
#include "headroom/supervise/places.h"
#include "headroom/supervise/run_report.h"

namespace headroom::supervise {

// Runs a launch in a place to its end. The try lacks its number, its values and its checkpoint.
using RunTry = std::function<Try(job::Launch, const Place&)>;

// `knobs` are those of `orders`, read before the wait for a place.
[[nodiscard]] Report run_supervision(const Orders& orders, const Listener& listener,
                                     const edit::Knobs& knobs, Places& places, const RunTry& run);

}  // namespace headroom::supervise
