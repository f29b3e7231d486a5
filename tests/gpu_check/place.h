// The card that the checks use: a real one, or a simulated one that computes.
//
//   Place place("cuda:0");            // or "sim:24GiB", "sim:H100"
//   const gpu::SimulatedCard card = place.described();   // for a prediction, before open()
//   const c10::Device device = place.open();
//   place.limit(1_GiB);               // the process may reserve no more
//
// Nothing creates a CUDA context before the first tensor.
#pragma once

#include <c10/core/Device.h>

#include <optional>
#include <string>
#include <vector>

#include "headroom/base/bytes.h"
#include "headroom/base/error.h"
#include "headroom/gpu/machine.h"
#include "headroom/gpu/simulated.h"
#include "headroom/sim/simulate.h"

namespace headroom::gpu_check {

// There is no card to compute on.
struct NoCardError : UnavailableError {
  using UnavailableError::UnavailableError;
};

class Place {
 public:
  // Throws UsageError for another text.
  explicit Place(const std::string& text);

  [[nodiscard]] const std::string& text() const { return text_; }
  [[nodiscard]] bool is_simulated() const { return simulated_.has_value(); }

  // The card as a dry run needs it, with its name, size and profile.
  [[nodiscard]] gpu::SimulatedCard described() const;
  // The real card as the driver sees it now; nothing for a simulated one, or if NVML does not show
  // the card that CUDA uses.
  [[nodiscard]] std::optional<gpu::Card> of_driver() const;

  // Throws NoCardError if there is none.
  c10::Device open();
  // This card and those after it; a simulated one has as many equal ones beside it as are wanted.
  std::vector<c10::Device> open_up_to(int count);
  // The most memory that this process may reserve on the card from now on, or on the one so many
  // places after it; empty: no limit.
  void limit(std::optional<Bytes> most, int after = 0);

 private:
  const std::string text_;
  int index_ = 0;  // cuda:N
  std::optional<gpu::SimulatedCard> simulated_;
  std::optional<sim::Simulation> box_;
};

// Every card of the machine, from NVML.
[[nodiscard]] gpu::Machine machine_now();

}  // namespace headroom::gpu_check
