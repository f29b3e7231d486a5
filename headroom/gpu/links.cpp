#include "headroom/gpu/links.h"

#include <algorithm>

namespace headroom::gpu {
namespace {

// What an all-reduce reaches of the data sheet, where the card was not measured: the least that the
// measured ones reach (data/cards.json). NVLink of A100 and H100: 230 of 300 and 370 of 450 GB/s;
// a bridge: 116 of 300 to 208 of 300; PCIe of the RTX 5090: 35 of 64 over 4 cards, 28 over 8.
constexpr double kOfNvlink = 230.0 / 300, kOfBridge = 116.0 / 300;
constexpr double kOfPcie = 35.0 / 64, kOfPcieOfMany = 28.0 / 64;
constexpr int kMany = 5;

}  // namespace

double link_bytes_per_second(const CatalogueCard& card, int cards) {
  const bool joins = card.nvlink_gb_s > 0 && (card.nvlink_joins == 0 || cards <= card.nvlink_joins);
  // The measurement with the fewest cards that are enough. A bridge says nothing of more cards.
  const AllReduce* measured = nullptr;
  for (const AllReduce& one : card.all_reduces)
    if (one.cards >= cards && (measured == nullptr || one.cards < measured->cards)) measured = &one;
  if (measured != nullptr) return measured->gb_s * 1e9;
  // The data sheet's figure for NVLink sums both directions.
  if (joins) return card.nvlink_gb_s / 2 * (card.nvlink_joins > 0 ? kOfBridge : kOfNvlink) * 1e9;
  return card.pcie_gb_s * (cards < kMany ? kOfPcie : kOfPcieOfMany) * 1e9;
}

}  // namespace headroom::gpu
