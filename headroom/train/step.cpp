#include "headroom/train/step.h"

#include <torch/nn/module.h>

#include <limits>
#include <utility>

#include "headroom/train/detail/alone.h"
#include "headroom/train/detail/step_state.h"

namespace headroom::train {

double Committed::loss() const {
  return loss_.item<double>();
}

double Committed::gradient_norm() const {
  return norm_.defined() ? norm_.item<double>() : std::numeric_limits<double>::quiet_NaN();
}

Step::Step(torch::nn::Module& module, optim::Optimizer& optimizer, Objective objective,
           const StepOptions& options)
    : Step(Team{{{module, optimizer, std::move(objective)}}}, options) {}
Step::Step(Team team, const StepOptions& options)
    : state_(std::make_unique<State>(std::move(team), options)) {}
Step::~Step() = default;

void Step::prepare(const Tensors& batch) {
  const detail::Alone alone(state_->runs);
  state_->prepare(batch);
}
Committed Step::run(const Tensors& batch) {
  const detail::Alone alone(state_->runs);
  return state_->run(batch);
}
Plan Step::first_plan(std::int64_t rows, const std::optional<PerStage>& usable) const {
  return state_->first_plan(rows, usable);
}
void Step::set_plan(const Plan& plan) {
  state_->set_plan(plan);
}
std::optional<Event> Step::shrink(std::int64_t rows) {
  return state_->shrink(rows);
}
std::optional<Plan> Step::plan_without_spill(std::int64_t rows) const {
  return state_->plan_without_spill(rows);
}
std::optional<PricedPlan> Step::least_plan(std::int64_t rows) const {
  return state_->least_plan(rows, {});
}
std::optional<PricedPlan> Step::least_plan(std::int64_t rows, std::int64_t min_micro_batch) const {
  return state_->least_plan(rows, min_micro_batch);
}
const Plan& Step::plan() const {
  return state_->plan;
}
const Prices* Step::prices() const {
  return state_->prices ? &*state_->prices : nullptr;
}
const std::string& Step::why_unpriced() const {
  return state_->why_unpriced;
}
std::optional<PerStage> Step::usable() const {
  return state_->usable();
}
std::optional<Event> Step::news_of_spill() {
  return state_->news_of_spill();
}
bool Step::keeps_plan() const {
  return state_->keeps_plan();
}
std::optional<memory::SpillUse> Step::spilled() const {
  return state_->spilled();
}
const Failure* Step::last_failure() const {
  return state_->last_failure ? &*state_->last_failure : nullptr;
}
std::int64_t Step::steps() const {
  return state_->ranks.first().commits();
}
void Step::set_steps(std::int64_t steps) {
  state_->ranks.set_commits(steps);
}
c10::Device Step::device() const {
  return state_->ranks.first().device();
}
std::vector<c10::Device> Step::devices() const {
  std::vector<c10::Device> devices;
  for (std::size_t rank = 0; rank < state_->ranks.size(); ++rank)
    devices.push_back(state_->ranks[rank].device());
  return devices;
}
parallel::Layout Step::layout() const {
  return state_->ranks.layout();
}
optim::LossScaler* Step::scaler(std::size_t rank) {
  auto& scaler = state_->ranks[rank].scaler();
  return scaler ? &*scaler : nullptr;
}
torch::nn::Module& Step::module(std::size_t rank) {
  return state_->ranks[rank].module();
}
const Objective& Step::objective(std::size_t rank) const {
  return state_->ranks[rank].objective();
}
optim::Optimizer& Step::optimizer(std::size_t rank) {
  return state_->ranks[rank].optimizer();
}

}  // namespace headroom::train
