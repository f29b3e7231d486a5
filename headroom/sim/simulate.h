// Simulates GPUs in this process. `sim:0` to `sim:N-1` become LibTorch devices: tensors on them
// take memory as on CUDA, and a full card throws c10::OutOfMemoryError. By default tensors have
// shapes but no data; with Mode::compute the CPU computes their values. The cards of one simulate()
// are a box.
//
//   Simulation box = simulate("8x31.36GiB");
//   auto net = libtorch::on(box.device(0), [] { return MyNet(); });   // libtorch/on.h
//   train_step(net);
//   box.card(0).statistics().allocated_bytes.all.peak;
//
// net->to(box.device(0)) and torch::load(net, file, box.device(0)) work as on CUDA. If the card is
// full halfway, net->to leaves a part of the model moved; libtorch::move moves all of it or
// nothing.
//
// The cards exist as long as the Simulation lives. Nothing is registered with LibTorch before the
// first call. From then on the device type `sim` stays known to the process (without cards when no
// Simulation lives), and from the next backward pass on autograd keeps a thread for each of
// kMostSimulatedCards cards.
//
// LibTorch has one accelerator per process, which is `sim` from the first call on. So simulate()
// throws UnavailableError in a process that has used CUDA, and after simulate() a backward pass on
// CUDA throws. A process that trains on a GPU gets its predictions from a child (child.h);
// dry_run() with the spec of a card, estimate_memory() and the like use a child themselves.
//
// A box with a name, `8x24GiB@lab`, is shared with the other processes that simulate it: memory
// that they hold of a card cannot be allocated here (shared_box.h).
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
  // Empty: the settings of PYTORCH_CUDA_ALLOC_CONF or PYTORCH_ALLOC_CONF, as PyTorch reads them.
  std::optional<allocator::Settings> settings = {};
  bool slow_way = false;  // Card::slow_way of each card
  // PyTorch allocates cuBLAS's workspaces in the same memory: per card, thread and stream, at the
  // first matrix product. Off: only tensors.
  bool cublas_workspaces = true;
};

// The box; one at a time in a process. Moving it moves its cards.
class Simulation {
 public:
  Simulation(Simulation&&) noexcept;
  Simulation& operator=(Simulation&&) noexcept;
  ~Simulation();  // removes the cards; tensors left on them may be freed, but not used

  [[nodiscard]] int cards() const;
  // Throws UsageError if there is no such card.
  [[nodiscard]] Card& card(int index) const;
  [[nodiscard]] c10::Device device(int index) const;

 private:
  friend Simulation simulate(const gpu::SimulatedBox& box, const SimulationOptions& options);
  struct Box;
  explicit Simulation(std::unique_ptr<Box> box);
  std::unique_ptr<Box> box_;
};

// Throws UsageError (a bad spec or environment variable; a box exists already), UnavailableError
// (CUDA is in use), and the errors of SharedBox for a shared box.
[[nodiscard]] Simulation simulate(std::string_view spec, const SimulationOptions& options = {});
[[nodiscard]] Simulation simulate(const gpu::SimulatedBox& box,
                                  const SimulationOptions& options = {});

// Number of cards in this process now, whichever part of the program simulates them.
[[nodiscard]] int card_count() noexcept;

// Throws UsageError in the name of `function`, which needs its own box, while there is one.
void check_alone(std::string_view function);

// The card of a device of type `sim`, whichever part of the program holds the Simulation. Throws
// UsageError if there is none.
[[nodiscard]] std::shared_ptr<Card> card_of(c10::Device device);

}  // namespace headroom::sim
