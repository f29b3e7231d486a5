// A source of cards whose memory and process list belong together, as the ledger needs them.
//
// The ledger adds what is free to what leases still have to come: free - (reserved - used). A
// driver tells free and used one after the other, and memory that a lease takes or gives back in
// between would be counted wrongly:
//
//                      told first: free        then: used by process     free + used says
//   taken in between   without it              with it                   too much: promised twice
//   given back         with it                 without it                too little: harmless
//   told the other way round, it is the giving back that is counted twice.
//
// So all is told twice (free, used, free, used), and the lesser of each is kept: whatever is taken
// and given back once in between, never too much is promised. Only what is taken, given back and
// taken again within these milliseconds could be.
//
//   gpu::Sampler sampler(lease::steady(gpu::make_source(devices)), {.keep_sampling = false});
#pragma once

#include <memory>

#include "headroom/gpu/source.h"

namespace headroom::lease {

// Thread rule: the source's.
[[nodiscard]] std::shared_ptr<gpu::CardSource> steady(std::shared_ptr<gpu::CardSource> source);

}  // namespace headroom::lease
