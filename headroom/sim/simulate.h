// A box of simulated GPUs in this process: `sim:0` to `sim:N-1` are devices like any other, for any
// code that LibTorch runs.
//
//   Simulation box = simulate("8x31.36GiB");
//   auto model = on(box.device(0), [] { return MyNet(); });
//   ...
//
// A model that is there already moves by `net->to(box.device(0))`, as to CUDA, and torch::load(net,
// file, box.device(0)) loads it there (libtorch/set_data.h, which the first call installs);
// libtorch::move is the way that moves all of it or nothing.
//
// While the Simulation lives, the cards exist. Nothing of this is registered with LibTorch before
// the first call; from then on the device type `sim` stays known to the process (without cards,
// when no Simulation lives), and autograd keeps a thread for each of kMostSimulatedCards cards from
// its next backward pass on.
//
// LibTorch has one accelerator a process, and from the first call on takes `sim` for it. So
// simulate() throws UnavailableError in a process that has used CUDA, and after it a backward pass
// on CUDA throws. A process that trains on a GPU gets its predictions from a child (child.h):
// dry_run() with the spec of a card, estimate_memory() and the like do that by themselves.
//
// A box with a name, `8x24GiB@lab`, is shared with the other processes that simulate it: what they
// hold of a card cannot be allocated here (shared_box.h).
#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <optional>
#include <string_view>

#include "headroom/allocator/settings.h"
#include "headroom/gpu/simulated.h"
#include "headroom/sim/card.h"

namespace headroom::sim {

struct SimulationOptions {
  Mode mode = Mode::shape_only;
  Rules rules = Rules::cuda;
  // Nothing: what PYTORCH_CUDA_ALLOC_CONF or PYTORCH_ALLOC_CONF says, as PyTorch reads them.
  std::optional<allocator::Settings> settings = {};
  bool slow_way = false;  // Card::slow_way of each card
  // PyTorch takes cuBLAS's workspaces from the same memory: of each card, at its first matrix
  // product, one for each thread and stream. Off: the tensors alone.
  bool cublas_workspaces = true;
};

// The box. One at a time in a process; where it moves, the cards move along.
class Simulation {
 public:
  Simulation(Simulation&&) noexcept;
  Simulation& operator=(Simulation&&) noexcept;
  ~Simulation();  // the cards are gone; tensors on them may still be freed, not used

  [[nodiscard]] int cards() const;
  // Throws UsageError beyond the last.
  [[nodiscard]] Card& card(int index) const;
  [[nodiscard]] c10::Device device(int index) const;

 private:
  friend Simulation simulate(const gpu::SimulatedBox& box, const SimulationOptions& options);
  struct Box;
  explicit Simulation(std::unique_ptr<Box> box);
  std::unique_ptr<Box> box_;
};

// Throws UsageError (a bad spec or environment variable; a box exists already), UnavailableError
// (CUDA is in use), and of a shared box what SharedBox throws.
[[nodiscard]] Simulation simulate(std::string_view spec, const SimulationOptions& options = {});
[[nodiscard]] Simulation simulate(const gpu::SimulatedBox& box,
                                  const SimulationOptions& options = {});

// How many cards there are in this process now, whatever part of the program simulates them.
[[nodiscard]] int card_count() noexcept;

// Throws UsageError in the name of a function that needs to simulate a box of its own while there
// is one.
void check_alone(std::string_view function);

// The card a device of type `sim` stands for, in whatever part of the program the Simulation is.
// Throws UsageError if there is none.
[[nodiscard]] std::shared_ptr<Card> card_of(c10::Device device);

}  // namespace headroom::sim
