#include "headroom/gpu/links.h"

#include <gtest/gtest.h>

namespace headroom::gpu {
namespace {

double gb_s(const char* card, int cards) {
  return link_bytes_per_second(card_named(card), cards) / 1e9;
}

// NVIDIA/nccl#1639, NVIDIA/nccl-tests#149 and #212, NVIDIA/nccl#1161, NVIDIA/nccl-tests#178.
TEST(Links, AreThoseThatWereMeasured) {
  EXPECT_DOUBLE_EQ(gb_s("RTX 5090", 8), 28);
  EXPECT_DOUBLE_EQ(gb_s("RTX 5090", 4), 35);
  EXPECT_DOUBLE_EQ(gb_s("A100-SXM4-80GB", 8), 230);
  EXPECT_DOUBLE_EQ(gb_s("H100 80GB HBM3", 8), 370);
  EXPECT_DOUBLE_EQ(gb_s("H100 PCIe", 2), 116);
  EXPECT_DOUBLE_EQ(gb_s("A100 80GB PCIe", 2), 208);
  EXPECT_DOUBLE_EQ(gb_s("A100 80GB PCIe", 4), 20);
}

// Two RTX 3090 with a bridge of 56.25 GB/s in each direction; four have PCIe 4.0, 32 GB/s.
TEST(Links, OverABridgeJoinTwoCards) {
  EXPECT_NEAR(gb_s("RTX 3090", 2), 56.25 * 116 / 300, 1e-9);
  EXPECT_NEAR(gb_s("RTX 3090", 4), 32 * 35.0 / 64, 1e-9);
  EXPECT_NEAR(gb_s("RTX 3090", 8), 32 * 28.0 / 64, 1e-9);
  EXPECT_NEAR(gb_s("H200", 8), 450 * 230.0 / 300, 1e-9);
}

TEST(Links, NeverReachMoreThanTheDataSheet) {
  for (const CatalogueCard& card : catalogue())
    for (int cards = 2; cards <= 16; ++cards) {
      const double link = link_bytes_per_second(card, cards) / 1e9;
      EXPECT_GE(link, 0);
      EXPECT_LE(link, std::max(card.pcie_gb_s, card.nvlink_gb_s / 2)) << card.name;
    }
}

}  // namespace
}  // namespace headroom::gpu
