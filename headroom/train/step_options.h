// Settings of a training step, all optional.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <functional>
#include <optional>

#include "headroom/memory/spill.h"
#include "headroom/optim/loss_scaler.h"
#include "headroom/optim/schedule.h"
#include "headroom/train/event.h"
#include "headroom/train/ladder.h"
#include "headroom/train/plan.h"

namespace headroom::train {

struct StepOptions {
  double max_grad_norm = 0;  // clips the norm of all gradients; 0: does not
  // run() throws InputError for a batch whose loss or gradients are infinite or NaN, and the step
  // has not begun. It waits for the device in each step. With `scaling` it looks at the loss alone:
  // the scaler skips such gradients.
  bool refuse_non_finite = false;
  std::optional<c10::ScalarType> autocast = {};          // of matrix products: kBFloat16 or kHalf
  std::optional<optim::LossScalerOptions> scaling = {};  // of the loss, for float16
  // A factor on the optimizer's learning rates, by step; without a function, 1.
  optim::Schedule schedule = {};
  LadderOptions ladder = {};
  // The wish. Where it does not fit, the step begins with a plan that does, and returns to the wish
  // when there is room again.
  Plan plan = {};
  // Dry runs of the plans before the first step, in a child process: some 10 ms each for a model of
  // 100 million parameters. Without prices the ladder halves micro-batches, which an event says. It
  // is not possible on the CPU, or once this process has run backward passes on a card.
  bool prices = true;
  // If false, the plan changes only when an attempt has failed, and never back.
  bool adapts = true;
  // Most bytes that this process may reserve of a device, where something beside the device limits
  // it, such as a lease. Called before each step and after each failure; std::nullopt if there is
  // no such limit.
  std::function<std::optional<Bytes>(c10::Device)> usable = {};
  // Called before an attempt with the memory that its plan needs on a device, where that is known:
  // the time to make a lease as large. If it returns false, that memory is not available now, and
  // the step takes a plan for the rest.
  std::function<bool(c10::Device, Bytes)> reserve = {};
  // What is needed later waits on the host where an attempt would run out of memory, and the
  // attempt goes on (memory/spill.h). The ladder comes after it. Without this, and on the CPU, the
  // attempt fails.
  std::optional<memory::SpillOptions> spill = {};
  std::int64_t grow_after = 10;  // steps without trouble, before a faster plan is tried
  // Called when no plan is left, between attempts: may wait until there is more memory, and returns
  // whether to try again. Without a function the step throws.
  std::function<bool(const Failure&)> wait_for_memory = {};
  std::function<void(const Event&)> on_event = {};  // each failure and decision of the step
};

}  // namespace headroom::train
