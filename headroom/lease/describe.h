// How people read about leases.
#pragma once

#include <string>
#include <vector>

#include "headroom/gpu/select.h"
#include "headroom/lease/ledger.h"

namespace headroom::lease {

// "lease 7f3a9c1e of alice, PID 1234 (python train.py)".
[[nodiscard]] std::string describe(const Claim& claim);

// What the sentence of a selection does not know: who reserved what of these cards and does not use
// it yet, how many are first, and the position in the line. Empty if there is nothing to say.
[[nodiscard]] std::string also_in_the_way(const Look& look, const std::vector<gpu::Uuid>& cards,
                                          long long ticket);

// 1 for whoever is next. Those who do not look do not count.
[[nodiscard]] int position(const std::vector<Waiter>& waiting, long long ticket);

}  // namespace headroom::lease
