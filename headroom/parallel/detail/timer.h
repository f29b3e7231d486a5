// DDP warns if a device type has no timer. This one measures nothing, because no time passes on a
// simulated card.
#pragma once

namespace headroom::parallel::detail {

// Registers the timer once per process; repeated calls do nothing.
void give_ddp_a_timer();

}  // namespace headroom::parallel::detail
