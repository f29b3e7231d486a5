// The devices of a training, and those that it may move to.
#pragma once

#include <c10/core/Device.h>

#include <optional>
#include <vector>

#include "headroom/base/json.h"
#include "headroom/cli/engine/train/training_share.h"
#include "headroom/config/resolved.h"
#include "headroom/gpu/catalogue.h"
#include "headroom/gpu/holders.h"
#include "headroom/sim/simulate.h"
#include "headroom/train/ladder.h"

namespace headroom::cli {

class TrainingMachine {
 public:
  // From the request of `headroom train`, which outlives it: simulates the box, or loads CUDA, or
  // takes the CPU. Throws UnavailableError.
  explicit TrainingMachine(const Json& request);

  // std::nullopt unless the cards are simulated.
  [[nodiscard]] const std::optional<sim::Simulation>& box() const { return box_; }
  // The cards of the catalogue whose rates its simulated cards have, by rank; of a CPU an A100.
  [[nodiscard]] std::vector<const gpu::CatalogueCard*> rates() const;
  // With the memory that this run may use of each. Without those of which it may use nothing. None
  // for a run on several cards.
  [[nodiscard]] std::vector<train::Elsewhere> others(const config::Resolved& config);
  // The processes that hold memory of a card of the run. Empty for a private simulated card, which
  // has no others, and where the driver does not answer.
  [[nodiscard]] std::vector<gpu::HolderReport> holders(c10::Device device) const;
  [[nodiscard]] bool is_cpu() const { return own.front().is_cpu(); }

  std::vector<c10::Device> own;  // by rank (parallel/layout.h)
  TrainingShare share;           // outlives the box: the lease ends after the memory is given back

 private:
  const Json& request_;
  std::optional<sim::Simulation> box_;
};

}  // namespace headroom::cli
