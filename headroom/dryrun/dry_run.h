// Will it fit? Runs a training step on a simulated card without data: the model's own code runs
// forward, backward and optimizer in milliseconds, and every allocation is recorded.
//
// On a card of a simulation, as it is now:
//
//   auto box = sim::simulate("1xRTX4090");
//   auto net = libtorch::on(box.device(0), [] { return std::make_shared<Net>(); });
//   torch::optim::AdamW optimizer(net->parameters());
//   const Report report = dry_run(*net, batch, loss, optimizer);   // loss(net, batch) -> Tensor
//
// Any step that is a function, on a card made for it:
//
//   const Report report = dry_run("RTX 4090", [](c10::Device device) -> Subject {
//     auto net = ...;                       // made on the device
//     return {.step = [=] { ... }};         // runs twice
//   });
//
// Phases: backward is the work of autograd's engine. Optimizer is the work after it that records no
// graph, until an operator records one again. The rest is forward.
//
// Modules: an operator belongs to the module whose parameter it uses. An operator without
// parameters belongs to the module of the previous operator on its thread. Backward work belongs to
// the module that recorded it in forward. For a parameter shared by several modules, an embedding
// belongs to the first, every other operator to the last.
//
// Threads: one dry run per card at a time. Steps may use threads.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "headroom/allocator/settings.h"
#include "headroom/dryrun/subject.h"
#include "headroom/gpu/simulated.h"
#include "headroom/libtorch/modules.h"
#include "headroom/libtorch/stored_weight.h"
#include "headroom/sim/simulate.h"
#include "headroom/trace/report.h"

namespace headroom::dryrun {

// Runs the step of a subject whose tensors are on this card. The card must be shape-only. Throws
// the step's exceptions, except an out-of-memory of the card, which the report contains. Throws
// UsageError for a step that does not use the card, with the tensors that it used elsewhere.
[[nodiscard]] trace::Report dry_run(sim::Card& card, const Subject& subject,
                                    const Options& options = {});

// Options for the new card, as in sim::SimulationOptions.
struct CardOptions {
  sim::Rules rules = sim::Rules::cuda;
  std::optional<allocator::Settings> settings = {};  // std::nullopt: taken from the environment
  bool cublas_workspaces = true;
};

// On a card made for it, from a spec such as "RTX 4090", "24GiB" or "unlimited". `make` builds
// everything on the device it is given. If that does not fit, `make` runs again on an unlimited
// card: the report's figures are those of that run, and out_of_memory says where the capacity
// ended.
//
// In a process that has GPUs it runs in a child process, so that the process can train on them
// afterwards (sim/child.h says when that is impossible). The report is the same, without the trace.
[[nodiscard]] trace::Report dry_run(std::string_view card_spec,
                                    const std::function<Subject(c10::Device)>& make,
                                    const Options& options = {},
                                    const CardOptions& card_options = {});

// The same for a known card, for instance one with a real card's free memory.
[[nodiscard]] trace::Report dry_run(const gpu::SimulatedCard& card,
                                    const std::function<Subject(c10::Device)>& make,
                                    const Options& options = {},
                                    const CardOptions& card_options = {});

// Parses such a spec. Throws UsageError for several cards or a shared box.
[[nodiscard]] gpu::SimulatedCard card_for(std::string_view spec);

namespace detail {
void add_inputs(std::vector<at::Tensor>& inputs, const at::Tensor& batch);
template <typename Batch>
void add_inputs(std::vector<at::Tensor>& inputs, const Batch& batch) {
  if constexpr (requires { batch.begin(); })
    for (const auto& part : batch) add_inputs(inputs, part);
  else if constexpr (requires { std::tuple_size<Batch>::value; })
    std::apply([&](const auto&... part) { (add_inputs(inputs, part), ...); }, batch);
}
template <typename Optimizer>
std::vector<at::Tensor> states_of(const Optimizer& optimizer) {
  std::vector<at::Tensor> all;
  if constexpr (std::is_convertible_v<const Optimizer&, const torch::optim::Optimizer&>) {
    all = libtorch::states_of(optimizer);
  } else if constexpr (requires { optimizer.state(optimizer.parameters().size()); }) {
    for (std::size_t i = 0; i < optimizer.parameters().size(); ++i)
      for (const auto& [name, tensor] : optimizer.state(i)) all.push_back(tensor);
  }
  return all;
}
[[nodiscard]] sim::Card& card_of_all(const Subject& subject);
}  // namespace detail

// From a model, a batch (a tensor, or a list or tuple of them), loss(model, batch) and an
// optimizer.
template <typename Model, typename Batch, typename Loss, typename Optimizer>
[[nodiscard]] Subject subject_of(Model& model, const Batch& batch, Loss loss,
                                 Optimizer& optimizer) {
  Subject subject;
  subject.parameters = libtorch::parameters_of(model);
  for (const auto& buffer : model.named_buffers())
    subject.buffers.emplace_back(buffer.key(), buffer.value());
  detail::add_inputs(subject.inputs, batch);
  subject.states = detail::states_of(optimizer);
  subject.step = [&model, batch, loss, &optimizer] {
    optimizer.zero_grad();
    loss(model, batch).backward();
    optimizer.step();
  };
  return subject;
}

template <typename Model, typename Batch, typename Loss, typename Optimizer>
[[nodiscard]] trace::Report dry_run(Model& model, const Batch& batch, Loss loss,
                                    Optimizer& optimizer, const Options& options = {}) {
  const Subject subject = subject_of(model, batch, std::move(loss), optimizer);
  return dry_run(detail::card_of_all(subject), subject, options);
}

}  // namespace headroom::dryrun
