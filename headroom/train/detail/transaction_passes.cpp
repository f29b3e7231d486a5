// A part's way forward and back through a rank's model, and to the stages beside it.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

#include "headroom/base/error.h"
#include "headroom/libtorch/autocast.h"
#include "headroom/train/detail/checks.h"
#include "headroom/train/detail/transaction.h"

namespace headroom::train::detail {

using at::Tensor;

// One number, the loss, of the last stage, or of a model that is not split.
Tensors Transaction::outputs_of(const Tensors& rows, const Tensors& given) {
  const auto run = [&] {
    return objective_.part ? objective_.part(rows, given) : Tensors{objective_.loss(rows)};
  };
  if (!offload_) return run();
  const auto scope = offload_->scope();
  return run();
}

Tensors Transaction::run_forward(const Tensors& rows, std::int64_t in_all, InFlight& part) {
  Tensors here;
  {
    const PhaseNow data = phase(trace::Phase::data);
    here = put_on(used(objective_, rows), device_);
  }
  const PhaseNow forward = phase(trace::Phase::forward);
  std::optional<libtorch::AutocastScope> autocast;
  if (options_.autocast) autocast.emplace(device_.type(), *options_.autocast);
  Tensors outputs = outputs_of(here, part.given);
  if (after_) {
    for (const Tensor& one : outputs)
      part.outputs.push_back(one.defined() && one.requires_grad()
                                 ? torch::autograd::impl::gradient_edge(one)
                                 : torch::autograd::Edge());
    return outputs;
  }
  if (outputs.size() != 1)
    throw UsageError(expectation("Step", "the loss alone from the last stage",
                                 std::to_string(outputs.size()) + " tensors"));
  check_loss(outputs.front());
  part.share = optim::share_of_batch(outputs.front(), terms(rows), in_all);
  return {};
}

// A stage that has failed goes on to take and to give, for the others.
void Transaction::forward(const Tensors& rows, std::int64_t in_all, FirstFailure& failure) {
  InFlight part;
  if (before_ && failure)
    failure.always([&] { before_->skip(); });
  else if (before_)
    failure.always([&] { part.given = before_->take(device_); });
  Tensors outputs;
  failure.then([&] { outputs = run_forward(rows, in_all, part); });
  if (after_ && failure)
    failure.always([&] { after_->give_nothing(); });
  else if (after_)
    failure.always([&] { after_->give(outputs); });
  failure.then([&] { in_flight_.push_back(std::move(part)); });
  if (failure) in_flight_.clear();
}

void Transaction::backward(bool is_last, FirstFailure& failure) {
  Tensors gradients, back;
  if (after_ && failure)
    failure.always([&] { after_->skip(); });
  else if (after_)
    failure.always([&] { gradients = after_->take(device_); });
  failure.then([&] {
    InFlight part = std::move(in_flight_.front());
    in_flight_.pop_front();
    const PhaseNow backward = phase(trace::Phase::backward);
    if (!after_) kept_->loss.add_(part.share.detach());
    if (reducer_ && is_last) reducer_->arm();
    run_backward(part, gradients);
    for (const Tensor& one : part.given) back.push_back(one.defined() ? one.grad() : Tensor());
  });
  if (failure) in_flight_.clear();
  if (before_ && failure)
    failure.always([&] { before_->give_nothing(); });
  else if (before_)
    failure.always([&] { before_->give(back); });
}

// From the edges of its graph: what it gave to the next stage is not kept for this.
void Transaction::run_backward(InFlight& part, const Tensors& gradients) {
  if (!after_) return (scaler_ ? scaler_->scale(part.share) : part.share).backward();
  torch::autograd::edge_list roots;
  Tensors at_roots;
  for (std::size_t i = 0; i < part.outputs.size(); ++i)
    if (part.outputs[i].is_valid() && gradients.at(i).defined()) {
      roots.push_back(std::move(part.outputs[i]));
      at_roots.push_back(gradients[i]);
    }
  if (roots.empty()) return;
  torch::autograd::Engine::get_default_engine().execute(roots, at_roots, /*keep_graph=*/false,
                                                        /*create_graph=*/false,
                                                        /*accumulate_grad=*/true);
}

}  // namespace headroom::train::detail
