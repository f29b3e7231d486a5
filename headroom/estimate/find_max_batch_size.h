// The largest batch with which a module of one's own trains on a device.
//
//   const auto rows_of = [](std::int64_t rows) { return torch::randn({rows, 3, 224, 224}); };
//   const MaxBatch found = find_max_batch_size(*net, rows_of, device, 1, 4096, {.really = true});
//   found.size;          // 212: trained two steps on the device, 213 ran out of memory
//   found.recommended;   // 190: 10 % less
//
// create_batch(n) makes a batch of n of the longest rows there will be; what it may return, and
// what the loss is, says trainee.h. A step is forward, loss, backward, optimizer; two of them are
// run, the second beside the optimizer's state.
//
// A model that need not be there yet, for a card that need not be there:
//
//   find_max_batch_size([] { return Net(); }, rows_of, dryrun::card_for("RTX 4090"), 1, 4096);
//
// First by dry run, without computing. If asked (`really`), then on the device itself: an
// out-of-memory there is caught and what it left is freed. Afterwards parameters, buffers,
// gradients, the optimizer's state, the modules' training mode and the random states of CPU and
// device are, to the bit, what they were, also when something else was thrown. Meanwhile copies of
// them lie in host memory. What a module keeps besides parameters and buffers is not restored.
//
// Threads: nothing else may use the model or the device meanwhile.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <concepts>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "headroom/estimate/largest.h"
#include "headroom/estimate/trainee.h"
#include "headroom/gpu/simulated.h"

namespace headroom::estimate {

struct MaxBatchOptions {
  Margin margin = {};
  bool really = false;
  // The training's own, of a class of torch::optim, over the model's parameters. Null: an AdamW is
  // made for the trial.
  torch::optim::Optimizer* optimizer = nullptr;
  int steps = 2;
};

struct MaxBatch {
  std::optional<std::int64_t> size;         // nothing: not even the smallest fits
  std::optional<std::int64_t> recommended;  // as Largest has it
  bool capped = false;                      // `max` fits
  std::vector<Probe> dry_probes;            // in the order of the runs
  std::vector<Probe> real_probes;           // of one that did not fit, what was reserved by then
};

namespace detail {

[[nodiscard]] MaxBatch find_max_batch_size(const Trainee& trainee, c10::Device device,
                                           std::int64_t min, std::int64_t max,
                                           const MaxBatchOptions& options);
[[nodiscard]] MaxBatch find_max_batch_size(const Trainee& trainee, const gpu::SimulatedCard& card,
                                           std::int64_t min, std::int64_t max,
                                           const MaxBatchOptions& options);

}  // namespace detail

// On the device where the model lies: a simulated card, or a GPU. There the dry run takes a copy of
// the model (its class has clone()) and, where the process allows none (sim/child.h), is left out
// if the batch is really tried. Throws UsageError: the model lies elsewhere, or nobody counts the
// device's memory (the CPU's).
template <std::derived_from<torch::nn::Module> Model, typename CreateBatch,
          typename Loss = detail::MeanOfOutput>
[[nodiscard]] MaxBatch find_max_batch_size(Model& model, CreateBatch create_batch,
                                           c10::Device device, std::int64_t min, std::int64_t max,
                                           const MaxBatchOptions& options = {}, Loss loss = {}) {
  return detail::find_max_batch_size(
      detail::trainee_of(model, std::move(create_batch), std::move(loss)), device, min, max,
      options);
}

// The same for a card that need not be there, "RTX 4090" (dryrun::card_for), by dry run alone. The
// model may lie anywhere and is not touched: a copy of it runs, for which its class has clone().
// Throws UsageError while a Simulation lives: there is one box at a time.
template <std::derived_from<torch::nn::Module> Model, typename CreateBatch,
          typename Loss = detail::MeanOfOutput>
[[nodiscard]] MaxBatch find_max_batch_size(Model& model, CreateBatch create_batch,
                                           const gpu::SimulatedCard& card, std::int64_t min,
                                           std::int64_t max, const MaxBatchOptions& options = {},
                                           Loss loss = {}) {
  return detail::find_max_batch_size(
      detail::trainee_of(model, std::move(create_batch), std::move(loss)), card, min, max, options);
}

// The same of models that a function makes, `[] { return Net(); }`: their class needs no clone().
template <detail::MakesModel Make, typename CreateBatch, typename Loss = detail::MeanOfOutput>
[[nodiscard]] MaxBatch find_max_batch_size(Make make, CreateBatch create_batch,
                                           const gpu::SimulatedCard& card, std::int64_t min,
                                           std::int64_t max, const MaxBatchOptions& options = {},
                                           Loss loss = {}) {
  return detail::find_max_batch_size(
      detail::trainee_of(std::move(make), std::move(create_batch), std::move(loss)), card, min, max,
      options);
}

}  // namespace headroom::estimate
