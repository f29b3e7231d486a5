// Finds the largest batch with which a user's own module trains on a device.
//
//   const auto rows_of = [](std::int64_t rows) { return torch::randn({rows, 3, 224, 224}); };
//   const MaxBatch found = find_max_batch_size(*net, rows_of, device, 1, 4096, {.really = true});
//   found.size;          // 212: trained two steps on the device, 213 ran out of memory
//   found.recommended;   // 190: 10 % less
//
// create_batch(n) makes a batch of n rows of the greatest length; user_module.h defines its return
// types and the loss. A step is forward, loss, backward, optimizer. Two steps run, so that the
// second one has the optimizer's state beside it.
//
// For a model or a card that does not exist yet:
//
//   find_max_batch_size([] { return Net(); }, rows_of, dryrun::card_for("RTX 4090"), 1, 4096);
//
// The search starts with dry runs, without computing. If `really` is set, it then trains on the
// device itself: it catches out-of-memory errors there and frees their remains. Afterwards it
// restores every bit of the parameters, buffers, gradients, optimizer state, the modules' training
// mode and the random states of CPU and device, also after an exception. Until then it keeps copies
// of them in host memory. It does not restore state that a module keeps outside parameters and
// buffers.
//
// Threads: no other thread may use the model or the device during the call.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <concepts>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "headroom/estimate/largest.h"
#include "headroom/estimate/user_module.h"
#include "headroom/gpu/simulated.h"

namespace headroom::estimate {

struct MaxBatchOptions {
  Margin margin = {};
  bool really = false;
  // The training's own optimizer, of a class of torch::optim, over the model's parameters. Null
  // means the trial makes an AdamW.
  torch::optim::Optimizer* optimizer = nullptr;
  int steps = 2;
};

struct MaxBatch {
  std::optional<std::int64_t> size;         // std::nullopt if even the smallest does not fit
  std::optional<std::int64_t> recommended;  // as in Largest
  bool capped = false;                      // `max` fits
  std::vector<Probe> dry_probes;            // in the order of the runs
  std::vector<Probe> real_probes;           // if it did not fit: reserved when memory ran out
};

namespace detail {

[[nodiscard]] MaxBatch find_max_batch_size(const UserModule& user_module, c10::Device device,
                                           std::int64_t min, std::int64_t max,
                                           const MaxBatchOptions& options);
[[nodiscard]] MaxBatch find_max_batch_size(const UserModule& user_module,
                                           const gpu::SimulatedCard& card, std::int64_t min,
                                           std::int64_t max, const MaxBatchOptions& options);

}  // namespace detail

// On the device that holds the model: a simulated card or a GPU. On a GPU the dry run uses a copy
// of the model (its class needs clone()). If the process cannot make a dry run (sim/child.h) and
// `really` is set, only the real trials run. Throws UsageError if the model is on another device,
// or if the device's memory is not tracked (the CPU's).
template <std::derived_from<torch::nn::Module> Model, typename CreateBatch,
          typename Loss = detail::MeanOfOutput>
[[nodiscard]] MaxBatch find_max_batch_size(Model& model, CreateBatch create_batch,
                                           c10::Device device, std::int64_t min, std::int64_t max,
                                           const MaxBatchOptions& options = {}, Loss loss = {}) {
  return detail::find_max_batch_size(
      detail::user_module_of(model, std::move(create_batch), std::move(loss)), device, min, max,
      options);
}

// The same for a card that need not exist, "RTX 4090" (dryrun::card_for), by dry run alone. The
// model may be on any device and stays untouched: a copy of it runs, so its class needs clone().
// Throws UsageError while a Simulation is alive: only one can exist at a time.
template <std::derived_from<torch::nn::Module> Model, typename CreateBatch,
          typename Loss = detail::MeanOfOutput>
[[nodiscard]] MaxBatch find_max_batch_size(Model& model, CreateBatch create_batch,
                                           const gpu::SimulatedCard& card, std::int64_t min,
                                           std::int64_t max, const MaxBatchOptions& options = {},
                                           Loss loss = {}) {
  return detail::find_max_batch_size(
      detail::user_module_of(model, std::move(create_batch), std::move(loss)), card, min, max,
      options);
}

// The same for a function that makes the model, `[] { return Net(); }`: its class needs no clone().
template <detail::MakesModel Make, typename CreateBatch, typename Loss = detail::MeanOfOutput>
[[nodiscard]] MaxBatch find_max_batch_size(Make make, CreateBatch create_batch,
                                           const gpu::SimulatedCard& card, std::int64_t min,
                                           std::int64_t max, const MaxBatchOptions& options = {},
                                           Loss loss = {}) {
  return detail::find_max_batch_size(
      detail::user_module_of(std::move(make), std::move(create_batch), std::move(loss)), card, min,
      max, options);
}

}  // namespace headroom::estimate
