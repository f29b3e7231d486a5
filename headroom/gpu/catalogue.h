// The GPUs people train on, known without one being there: memory as the driver reports it,
// bandwidth, rates, links. Every figure has its source in data/cards.json, which is part of the
// program.
//
//   find_card("4090")->total;   // also "RTX 4090", "a100-40gb", "h100 pcie"
//   nearest_card("RTX 409");    // "RTX 4090"
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/base/bytes.h"
#include "headroom/base/json.h"

namespace headroom::gpu {

// Dense rates in 10^12 operations a second: no sparsity, sums in fp32 as training does it. Empty
// where the chip has no such unit.
struct Rates {
  std::optional<double> fp32, tf32, fp16, bf16;
};

struct CatalogueCard {
  std::string name;   // as the driver prints it: "NVIDIA GeForce RTX 4090"
  std::string brief;  // "RTX 4090"
  std::vector<std::string> aliases;
  std::string kind;  // consumer, workstation, datacenter, mig
  std::string architecture;
  std::string capability;  // "8.9"
  Bytes total;             // as the driver reports it
  // What CUDA (and PyTorch's messages) call the total: the driver's own share is already off.
  std::optional<Bytes> cuda_total;
  double bandwidth_gb_s = 0;  // 10^9 bytes a second
  Rates rates;
  std::string pcie;        // "4.0 x16"
  double pcie_gb_s = 0;    // one direction
  double nvlink_gb_s = 0;  // both directions together; 0: none
  std::optional<double> power_w;
  std::string profile;  // key of its DeviceProfile
  std::string sources;  // titles of where the figures come from
};

// The whole catalogue, in the order of the data file. Read once; thread-safe.
[[nodiscard]] const std::vector<CatalogueCard>& catalogue();

// The card somebody means: driver's names, brief names and aliases, with vendor words, blanks,
// dashes and case ignored ("nvidia a100 sxm4 40gb", "A100-40GB"). Null if there is none.
[[nodiscard]] const CatalogueCard* find_card(std::string_view name);

// The brief name of the card somebody may have meant, if one is near.
[[nodiscard]] std::optional<std::string> nearest_card(std::string_view name);

// As find_card, but throws UsageError naming the nearest card.
[[nodiscard]] const CatalogueCard& card_named(std::string_view name);

}  // namespace headroom::gpu
