// The state besides inputs that decides what a part of a model computes: random numbers and
// autocast. It is saved at the first run and restored for the time of the second.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <array>
#include <deque>
#include <vector>

#include "headroom/libtorch/autocast.h"
#include "headroom/libtorch/random_state.h"

namespace headroom::nn::detail {

class RunState {
 public:
  // The current state. Throws UsageError unless one of the inputs is defined.
  explicit RunState(const std::vector<at::Tensor>& inputs);
  // After the first run: only the random numbers that it drew are replayed.
  void ran() { random_.keep_used(); }

  // Restores the state for the second run, which records a graph. Its destructor lets random
  // numbers continue as if none had been drawn.
  class Replay {
   public:
    explicit Replay(const RunState& then);
    ~Replay();
    Replay(const Replay&) = delete;
    Replay& operator=(const Replay&) = delete;
    // True while this thread has a Replay.
    [[nodiscard]] static bool is_running();

   private:
    const bool is_inner_;
    const at::AutoGradMode with_graph_{true};
    libtorch::RandomState before_;
    std::deque<libtorch::AutocastScope> autocast_;
  };

 private:
  struct Autocast {
    c10::DeviceType device;
    c10::ScalarType type;
    bool enabled;
  };
  static Autocast autocast_now(c10::DeviceType device);

  libtorch::RandomState random_;
  std::array<Autocast, 3> autocast_;
};

}  // namespace headroom::nn::detail
