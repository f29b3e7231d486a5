// The GPUs in common use for training, known without the hardware: memory as the driver reports it,
// bandwidth, throughput, links. data/cards.json, which is embedded in the program, gives the source
// of each figure.
//
//   find_card("4090")->total;   // also "RTX 4090", "a100-40gb", "h100 pcie"
//   find_card("A100");          // null, as the name is ambiguous; cards_called() lists the four
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/base/bytes.h"
#include "headroom/base/json.h"

namespace headroom::gpu {

// Dense throughput in 10^12 operations a second: no sparsity, sums in fp32 as in training.
// std::nullopt if the chip has no such unit.
struct Rates {
  std::optional<double> fp32, tf32, fp16, bf16;
};

// A measured sum of tensors over cards: what each sends and receives (links.h).
struct AllReduce {
  int cards = 0;
  double gb_s = 0;
};

struct CatalogueCard {
  std::string name;   // as the driver prints it: "NVIDIA GeForce RTX 4090"
  std::string brief;  // "RTX 4090"
  std::vector<std::string> aliases;
  std::string kind;  // consumer, workstation, datacenter, mig
  std::string architecture;
  std::string capability;  // "8.9"
  Bytes total;             // as the driver reports it
  // The total that CUDA (and PyTorch's messages) report: without the driver's own share.
  std::optional<Bytes> cuda_total;
  double bandwidth_gb_s = 0;  // 10^9 bytes a second
  Rates rates;
  std::string pcie;        // "4.0 x16"
  double pcie_gb_s = 0;    // one direction
  double nvlink_gb_s = 0;  // both directions together; 0: none
  int nvlink_joins = 0;    // 2 for a bridge between two cards; 0: all cards of a machine
  std::vector<AllReduce> all_reduces;
  std::optional<double> power_w;
  std::string profile;  // key of its DeviceProfile
  std::string sources;  // titles of the sources of these figures
};

// The whole catalogue, in the order of the data file. Loaded once; thread-safe.
[[nodiscard]] const std::vector<CatalogueCard>& catalogue();

// All cards that a name can mean: the card with exactly this name, else each card that has all of
// its words. Matches driver names, brief names and aliases; ignores vendor words, blanks, dashes
// and case ("nvidia a100 sxm4 40gb", "A100-40GB"). "Ti" and "SUPER" distinguish cards, and a name
// means a MIG slice only if it says so.
[[nodiscard]] std::vector<const CatalogueCard*> cards_called(std::string_view name);

// The one card that a name means. Null if there is none, or if there are several ("A100").
[[nodiscard]] const CatalogueCard* find_card(std::string_view name);

// The card whose rates and links a card of this name and size is taken to have: its own if the
// catalogue has it, else those of the one nearest in memory, by the driver's total or by CUDA's. Of
// equally near ones, the first that computes in bf16. Never a MIG slice for a plain size.
[[nodiscard]] const CatalogueCard& rates_for(std::string_view name, Bytes total);

// Like find_card, but throws UsageError. The error lists the cards of an ambiguous name, or the
// nearest cards of an unknown one. `where` and `expected` begin the error's text.
[[nodiscard]] const CatalogueCard& card_named(
    std::string_view name, std::string_view where = "card_named",
    std::string_view expected = "a GPU of the catalogue (headroom cards lists them)");

}  // namespace headroom::gpu
