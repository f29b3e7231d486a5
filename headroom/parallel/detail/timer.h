// DDP wants a clock for each type of device, or warns. No time passes on a simulated card.
#pragma once

namespace headroom::parallel::detail {

// Once a process is enough; more often does no harm.
void give_ddp_a_timer();

}  // namespace headroom::parallel::detail
