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
// step, it can be repeated if the optimizer was not interrupted().
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
  // Adjusts the factor. Call it after all optimizers have stepped.
  void update();

  [[nodiscard]] double factor() const;
  [[nodiscard]] std::int64_t good_steps() const;  // in a row
  void restore(double factor, std::int64_t good_steps);

 private:
  enum class Stage { ready, unscaled, stepped };
  struct Progress {
    Stage stage = Stage::ready;
    std::vector<at::Tensor> not_finite;  // one per device
  };
  void check_ready(const char* function) const;
  [[nodiscard]] std::vector<at::Tensor> unscale(const Optimizer& optimizer, const at::Tensor& by,
                                                bool half_too) const;
  void step_fused(Optimizer& optimizer, Progress& progress);

  LossScalerOptions options_;
  std::int64_t first_good_steps_ = 0;
  at::Tensor factor_, good_steps_;  // on the device of the first loss
  std::map<const Optimizer*, Progress> progress_;
};

}  // namespace headroom::optim
