// Estimates by dry run how much memory a user's own module needs to train, and whether it fits.
//
//   const auto rows_of = [](std::int64_t rows) { return torch::randn({rows, 3, 224, 224}); };
//   const auto report = estimate_memory(*net, rows_of, 64, dryrun::card_for("RTX 4090"));
//   report.fits();                              // true
//   std::cout << dryrun::describe(report);      // the peak, its parts, the largest modules
//
// or from a function that makes the model, so that its class needs no clone():
//
//   const auto report = estimate_memory([] { return Net(); }, rows_of, 64, card);
//
// A copy of the model, or a new one, runs two steps without data on a simulated card made for it.
// The model may be on any device and stays untouched. A copy needs clone(), as torch::nn::Cloneable
// provides it. user_module.h defines the return types of create_batch and the loss. For other kinds
// of steps see dryrun/dry_run.h; for published models by name see estimate.h.
//
// Throws UsageError while a Simulation is alive: only one can exist at a time. On its cards use
// dryrun::dry_run(model, batch, loss, optimizer) and find_max_batch_size(model, ..., device).
//
// Threads: no other thread may use the model during the call.
#pragma once

#include <concepts>
#include <cstdint>
#include <utility>

#include "headroom/dryrun/dry_run.h"
#include "headroom/estimate/user_module.h"
#include "headroom/gpu/simulated.h"

namespace headroom::estimate {

struct OwnModuleOptions {
  // The training's own optimizer, of a class of torch::optim. Null means an AdamW with PyTorch's
  // defaults.
  const torch::optim::Optimizer* optimizer = nullptr;
  dryrun::Options run = {};
  dryrun::CardOptions card = {};
};

namespace detail {
[[nodiscard]] trace::Report estimate_memory(const UserModule& user_module, std::int64_t rows,
                                            const gpu::SimulatedCard& card,
                                            const OwnModuleOptions& options);
}  // namespace detail

template <std::derived_from<torch::nn::Module> Model, typename CreateBatch,
          typename Loss = detail::MeanOfOutput>
[[nodiscard]] trace::Report estimate_memory(Model& model, CreateBatch create_batch,
                                            std::int64_t rows, const gpu::SimulatedCard& card,
                                            const OwnModuleOptions& options = {}, Loss loss = {}) {
  return detail::estimate_memory(
      detail::user_module_of(model, std::move(create_batch), std::move(loss)), rows, card, options);
}

template <detail::MakesModel Make, typename CreateBatch, typename Loss = detail::MeanOfOutput>
[[nodiscard]] trace::Report estimate_memory(Make make, CreateBatch create_batch, std::int64_t rows,
                                            const gpu::SimulatedCard& card,
                                            const OwnModuleOptions& options = {}, Loss loss = {}) {
  return detail::estimate_memory(
      detail::user_module_of(std::move(make), std::move(create_batch), std::move(loss)), rows, card,
      options);
}

}  // namespace headroom::estimate
