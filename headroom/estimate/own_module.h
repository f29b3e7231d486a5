// How much memory a module of one's own needs to train, and whether it fits: by dry run.
//
//   const auto rows_of = [](std::int64_t rows) { return torch::randn({rows, 3, 224, 224}); };
//   const auto report = estimate_memory(*net, rows_of, 64, dryrun::card_for("RTX 4090"));
//   report.fits();                              // true
//   std::cout << dryrun::describe(report);      // the peak, its parts, the largest modules
//
// or of a function that makes the model, so its class needs no clone():
//
//   const auto report = estimate_memory([] { return Net(); }, rows_of, 64, card);
//
// A copy of the model, or one made anew, runs two steps without data on a card made for it; the
// model may lie anywhere and is not touched. To be copied its class has clone(), as
// torch::nn::Cloneable gives it. What create_batch may return, and what the loss is, says
// trainee.h. For a step of another kind: dryrun/dry_run.h; for published models by name:
// estimate.h.
//
// Throws UsageError while a Simulation lives: there is one box at a time. On its cards
// dryrun::dry_run(model, batch, loss, optimizer) and find_max_batch_size(model, ..., device) work.
//
// Threads: nothing else may use the model meanwhile.
#pragma once

#include <concepts>
#include <cstdint>
#include <utility>

#include "headroom/dryrun/dry_run.h"
#include "headroom/estimate/trainee.h"
#include "headroom/gpu/simulated.h"

namespace headroom::estimate {

struct OwnModuleOptions {
  // The training's own, of a class of torch::optim. Null: an AdamW with PyTorch's defaults.
  const torch::optim::Optimizer* optimizer = nullptr;
  dryrun::Options run = {};
  dryrun::CardOptions card = {};
};

namespace detail {
[[nodiscard]] dryrun::Report estimate_memory(const Trainee& trainee, std::int64_t rows,
                                             const gpu::SimulatedCard& card,
                                             const OwnModuleOptions& options);
}  // namespace detail

template <std::derived_from<torch::nn::Module> Model, typename CreateBatch,
          typename Loss = detail::MeanOfOutput>
[[nodiscard]] dryrun::Report estimate_memory(Model& model, CreateBatch create_batch,
                                             std::int64_t rows, const gpu::SimulatedCard& card,
                                             const OwnModuleOptions& options = {}, Loss loss = {}) {
  return detail::estimate_memory(
      detail::trainee_of(model, std::move(create_batch), std::move(loss)), rows, card, options);
}

template <detail::MakesModel Make, typename CreateBatch, typename Loss = detail::MeanOfOutput>
[[nodiscard]] dryrun::Report estimate_memory(Make make, CreateBatch create_batch, std::int64_t rows,
                                             const gpu::SimulatedCard& card,
                                             const OwnModuleOptions& options = {}, Loss loss = {}) {
  return detail::estimate_memory(
      detail::trainee_of(std::move(make), std::move(create_batch), std::move(loss)), rows, card,
      options);
}

}  // namespace headroom::estimate
