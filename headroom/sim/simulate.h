// Simulates GPUs in this process. `sim:0` to `sim:N-1` become LibTorch devices: tensors on them
// take memory as on CUDA, and a full card throws c10::OutOfMemoryError. By default tensors have
// shapes but no data; with Mode::compute the CPU computes their values. A box is the
// cards of one simulate().
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
// The cards can be used as long as the Simulation lives; tensors that outlive it can only be freed.
// The first call registers the device type `sim` with LibTorch, for the life of the process. The
// next backward pass starts a thread of autograd for each of kMostSimulatedCards possible cards.
// Threads: call everything from any thread.
//
// LibTorch has one accelerator per process, which is `sim` from the first call on. So simulate()
// throws UnavailableError in a process that has used CUDA, and after simulate() a backward pass on
// CUDA throws. A process that trains on a GPU simulates in a child (child.h); dry_run() with the
// spec of a card and estimate_memory() start one themselves if the process has GPUs.
//
// A box with a name, `8x24GiB@lab`, is shared between processes: memory that one of them allocates
// is not free for the others (shared_box.h).
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
  // std::nullopt: the settings of PYTORCH_CUDA_ALLOC_CONF or PYTORCH_ALLOC_CONF, as PyTorch reads
  // them.
  std::optional<allocator::Settings> settings = {};
  bool slow_way = false;  // run operators without a rule for shapes on the CPU, over zeros
  // PyTorch allocates cuBLAS's workspaces in the same memory: per card, thread and stream, at the
  // first matrix product. False: cards count tensors alone.
  bool cublas_workspaces = true;
  // Finds missing waits between streams: an operator that uses memory which another stream may
  // still use throws libtorch::DeviceError, and names both operators and streams. Costs some
  // hundred nanoseconds an operator. It does not see operators of the CPU on pinned memory,
  // collectives, or the statistics that batch norm updates.
  bool check_streams = false;
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

// Throws UsageError if a Simulation lives. `function`, which needs a box of its own, is named in
// the error.
void check_alone(std::string_view function);

// The card of a device of type `sim`, whichever part of the program holds the Simulation. Throws
// UsageError if there is none.
[[nodiscard]] std::shared_ptr<Card> card_of(c10::Device device);

}  // namespace headroom::sim
