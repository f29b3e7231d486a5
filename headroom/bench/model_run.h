// One training of a benchmark, measured: the model is built, trained on so many samples, evaluated,
// and gives all memory back.
//
//   const ModelRun run = run_model(training, devices, {});
//   run.cards[0].peak_reserved;   // most that the allocator took from the card
//   run.cards[0].left;            // 0: everything was given back
//
// On simulated cards without data the steps are dry: a step is run until two make the same requests
// on all cards, and the smaller one at the end; the others are counted.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/base/bytes.h"
#include "headroom/base/json.h"
#include "headroom/bench/memory_curve.h"
#include "headroom/config/training.h"
#include "headroom/train/evaluation.h"
#include "headroom/train/event.h"
#include "headroom/train/step_options.h"

namespace headroom::bench {

struct ModelRunOptions {
  bool is_dry = true;
  // May change the settings of steps and evaluations, such as for a share of a card.
  std::function<void(train::StepOptions&, train::EvaluationOptions&)> guide = {};
  // Hears how many steps of how many have been run, or counted, and what happens.
  std::function<void(std::int64_t step, std::int64_t steps)> on_step = {};
  std::function<void(std::string_view line)> on_line = {};
  std::function<void(const train::Event&)> on_event = {};
  std::function<bool()> should_stop = {};  // asked after each step
};

struct CardRun {
  Bytes resident;                       // parameters, buffers, gradients and optimizer states
  Bytes peak_requested, peak_reserved;  // of the steps
  Bytes last_reserved;        // of dry steps: most that the last one, which is smaller, reserved
  Bytes evaluation_reserved;  // most that the evaluation reserved
  Bytes left;                 // more than before the run, after everything was given back
  std::vector<MemoryPoint> over_time = {};
};

struct ModelRun {
  bool is_dry = true, is_stopped = false;
  std::int64_t samples = 0, steps = 0;
  std::int64_t steps_run = 0;             // the others were counted
  std::vector<double> step_seconds = {};  // of real steps
  // On samples that it was not trained on; none if dry.
  std::optional<double> loss_before = {}, loss_after = {};
  std::vector<train::Event> events = {};
  std::vector<CardRun> cards = {};          // by rank
  std::optional<std::string> no_room = {};  // the out-of-memory that ended it
};
[[nodiscard]] Json to_json(const ModelRun& run);

// The training's data are made up, `examples` of them. Throws what a training does, but for an
// out-of-memory.
[[nodiscard]] ModelRun run_model(const config::Training& training,
                                 const std::vector<c10::Device>& devices,
                                 const ModelRunOptions& options);

}  // namespace headroom::bench
