// How fast cards of one machine send each other tensors.
//
//   link_bytes_per_second(card_named("RTX 5090"), 8);   // 28e9, of 64e9 on the data sheet
//
// By NVLink where it joins so many cards, else over PCIe. Figures are those that an all-reduce
// reaches ("bus bandwidth" of nccl-tests), measured where the catalogue has a measurement, and
// otherwise the share of the data sheet that the measured ones reach.
#pragma once

#include "headroom/gpu/catalogue.h"

namespace headroom::gpu {

// Of each of `cards` cards of this kind, in one direction, while all of them send.
[[nodiscard]] double link_bytes_per_second(const CatalogueCard& card, int cards);

}  // namespace headroom::gpu
