// A source of cards whose memory and process list belong together, as the ledger needs them.
//
// The ledger adds free memory to the memory that leases will still take: free - (reserved - used).
// A driver reports free and used one after the other, and memory that a lease takes or gives back
// in between would be counted wrongly:
//
//                      first: free        then: used by process     free + used is
//   taken in between   without it         with it                   too much: promised twice
//   given back         with it            without it                too little: harmless
//   In the other order, memory given back is counted twice.
//
// So this source reads everything twice (free, used, free, used) and keeps the smaller of each: no
// single take or return in between makes it promise too much. Only memory that is taken, given back
// and taken again within these milliseconds could.
//
//   gpu::Sampler sampler(lease::steady(gpu::make_source(devices)), {.keep_sampling = false});
#pragma once

#include <memory>

#include "headroom/gpu/source.h"

namespace headroom::lease {

// Thread rule: that of the source.
[[nodiscard]] std::shared_ptr<gpu::CardSource> steady(std::shared_ptr<gpu::CardSource> source);

}  // namespace headroom::lease
