// Loss scaling for training in float16, where small gradients would underflow to zero. The scaler
// multiplies the loss by a large factor and divides the gradients by it again. If gradients are
// infinite or NaN, it skips the step and lowers the factor.
//
//   optim::LossScaler scaler;
//   scaler.scale(loss).backward();
//   scaler.step(*optimizer);
//   scaler.update();
//
// torch.amp.GradScaler of PyTorch 2.11, operation for operation. Weights must be float32
// (autocast). To clip gradients, call `unscale` first.
//
// After an out-of-memory error in scale, unscale or update, the call can be repeated. After one in
// step, it can be repeated if the optimizer was not interrupted(). To do the whole step again with
// new gradients, call abandon() first.
//
// A step that cannot run out of memory after its backward pass (optimizer.h):
//
//   scaler.reserve(*optimizer);
//   scaler.scale(loss).backward();
//   scaler.commit(*optimizer);
//   scaler.update();
//
// Threads: one scaler, one thread at a time. An optimizer must live until `update`.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "headroom/optim/optimizer.h"

namespace headroom::optim {

struct LossScalerOptions {
  double first = 65536;
  double growth = 2;     // after growth_interval good steps in a row
  double backoff = 0.5;  // after a skipped step
  std::int64_t growth_interval = 2000;
};

class LossScaler {
 public:
  explicit LossScaler(const LossScalerOptions& options = {});  // throws UsageError

  [[nodiscard]] at::Tensor scale(const at::Tensor& loss);
  // Divides the optimizer's gradients by the factor. Call it at most once a step.
  void unscale(Optimizer& optimizer);
  // Unscales unless that is done, and steps if all gradients are finite.
  void step(Optimizer& optimizer);
  // After unscale() of an optimizer with reserve(): 1 if a gradient is infinite or NaN, else 0.
  // Where its parameters are a part of a model, write here whether one is in any part.
  [[nodiscard]] at::Tensor not_finite(const Optimizer& optimizer) const;
  // Adjusts the factor. Call it after all optimizers have stepped.
  void update();

  // Makes the scaler's numbers on each device of the optimizer, all or none; of one without
  // parameters that require gradients on `device`. From then on unscale, commit and update allocate
  // nothing on them.
  void reserve(const Optimizer& optimizer, std::optional<c10::Device> device = {});
  // As step(), by optimizer.commit(), which skips the update on the device. Throws UsageError where
  // commit() does, and without reserve().
  void commit(Optimizer& optimizer);
  // Forgets what was unscaled and stepped since the last update().
  void abandon() { progress_.clear(); }

  [[nodiscard]] double factor() const;
  [[nodiscard]] std::int64_t good_steps() const;         // in a row
  void restore(double factor, std::int64_t good_steps);  // throws UsageError

 private:
  enum class Stage { ready, unscaled, stepped };
  // The tensors reserved for an optimizer.
  struct Reserved {
    struct Place {                // on each device
      at::Tensor exact, rounded;  // the inverse of the factor, before and after rounding to float
      at::Tensor not_finite;      // not zero: a gradient there is infinite or NaN
    };
    std::vector<Place> places;
    at::Tensor found, arrived;  // on the factor's device: their sum, and one from another device
  };
  struct Progress {
    Stage stage = Stage::ready;
    bool in_place = false;               // unscaled into tensors that reserve() made
    std::vector<at::Tensor> not_finite;  // one per device
  };
  void check_ready(const char* function) const;
  // Throws UsageError after a step.
  Progress& progress_to_step(const char* function, const Optimizer& optimizer);
  [[nodiscard]] std::vector<at::Tensor> unscale(const Optimizer& optimizer, const at::Tensor& by,
                                                bool half_too) const;
  void step_fused(Optimizer& optimizer, Progress& progress);
  [[nodiscard]] at::Tensor unscale_in_place(const Optimizer& optimizer, Reserved& reserved) const;
  void begin_on(c10::Device device);

  LossScalerOptions options_;
  std::int64_t first_good_steps_ = 0;
  at::Tensor factor_, good_steps_;  // on the device of the first loss
  std::map<const Optimizer*, Progress> progress_;
  std::map<const Optimizer*, Reserved> reserved_;
};

}  // namespace headroom::optim
