#include "headroom/train/trainer.h"

#include <torch/nn/module.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <exception>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/libtorch/failure.h"
#include "headroom/memory/clear.h"
#include "headroom/memory/device_memory.h"
#include "headroom/train/detail/batch_rows.h"
#include "headroom/train/detail/trainer_state.h"

namespace headroom::train {

namespace {

Json json_of(const memory::GpuMemoryStats& now) {
  return {{"allocated_bytes", now.allocated.count},
          {"reserved_bytes", now.reserved.count},
          {"max_allocated_bytes", now.max_allocated.count}};
}

// Of the first card, and with several of each under "cards".
Json json_of(const std::map<std::size_t, memory::GpuMemoryStats>& cards) {
  if (cards.empty()) return Json::object();
  Json memory = json_of(cards.begin()->second);
  if (cards.size() == 1) return memory;
  for (const auto& [rank, now] : cards) {
    memory["cards"].push_back(json_of(now));
    memory["cards"].back()["device"] = now.device.str();
  }
  return memory;
}

}  // namespace

StepOptions Trainer::State::heard(TrainerOptions& options, State& state) {
  StepOptions step = options.step;
  step.on_event = [&state, others = step.on_event](const Event& event) {
    if (others) others(event);
    if (state.options_.listener.on_event) state.options_.listener.on_event(event);
  };
  if (!options.plan_schedule.empty()) step.adapts = false;
  return step;
}

Trainer::State::State(const Team& team, Batches batches, TrainerOptions given,
                      std::optional<Batches> evaluation)
    : step(team, heard(given, *this)),
      options_(std::move(given)),
      batches_(std::move(batches)),
      evaluation_batches_(std::move(evaluation)),
      leaks_(team.ranks.size()),
      neighbours_(team.ranks.size(), detail::NeighbourWatch(options_.emergency_clean_above)) {
  if (!batches_.next || batches_.per_epoch < 1)
    throw UsageError(expectation("Trainer", "batches, 1 or more in an epoch",
                                 batches_.next ? std::to_string(batches_.per_epoch) : "none"));
  if (options_.epochs < 1 || options_.steps < 0)
    throw UsageError(expectation("Trainer", "1 or more epochs", std::to_string(options_.epochs)));
  if (!options_.plan_schedule.empty()) schedule_.emplace(options_.plan_schedule);
  steps_in_all_ = options_.steps > 0 ? options_.steps : options_.epochs * batches_.per_epoch;
  if (evaluation_batches_) {
    EvaluationOptions how = options_.evaluation;
    if (!how.autocast) how.autocast = options_.step.autocast;
    how.on_event = [this, others = how.on_event](const Event& event) {
      if (others) others(event);
      tell(event);
    };
    evaluation_.emplace(team, how);
    if (evaluation_batches_->position) evaluation_start_ = evaluation_batches_->position();
  }
}

// ---- Messages ----

void Trainer::State::tell(Event event) {
  if (options_.listener.on_event) options_.listener.on_event(event);
  training_.events.push_back(std::move(event));
}

void Trainer::State::say(std::string_view line) const {
  if (options_.listener.on_line) options_.listener.on_line(line);
}

std::map<std::size_t, memory::GpuMemoryStats> Trainer::State::memory_now() const {
  std::map<std::size_t, memory::GpuMemoryStats> all;
  const std::vector<c10::Device> devices = step.devices();
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    try {
      all.emplace(rank, memory::get_gpu_memory_stats(devices[rank]));
    } catch (const UsageError&) {  // a CPU that is not counted
    }
  }
  return all;
}

// Epochs of a few steps would fill the screen.
void Trainer::State::say_epoch(std::int64_t epoch) {
  const auto now = Clock::now();
  if (said_epoch_ && now - *said_epoch_ < Seconds(5)) return;
  said_epoch_ = now;
  say_memory("epoch " + std::to_string(epoch));
}

void Trainer::State::say_memory(const std::string& prefix) const {
  std::vector<c10::Device> devices;
  for (const auto& [rank, now] : memory_now()) devices.push_back(now.device);
  if (!devices.empty()) say(memory::log_gpu_memory_stats(prefix, devices));
}

// ---- Before the first step ----

std::optional<FoundCheckpoint> Trainer::State::prepare() {
  if (std::exchange(is_prepared_, true)) return {};
  take_folder();
  if (options_.clear_memory_on_start) memory::clear_gpu_memory();
  if (batches_.position) position_ = batches_.position();
  Tensors first = batches_.next();
  step.prepare(first);
  rows_ = detail::rows_in(first);
  if (batches_.go_to)
    batches_.go_to(position_);
  else
    first_ = std::move(first);
  if (!checkpoints_ || !options_.resume) return {};
  std::optional<FoundCheckpoint> found = checkpoints_->load(step);
  if (found) restore(*found);
  return found;
}

// ---- A run ----

Trained Trainer::State::run() {
  prepare();
  take_folder();
  begun_ = step.steps();
  if (begun_ >= steps_in_all_)
    say("already at step " + std::to_string(begun_) + ": nothing is left to train");
  say_memory("start of training");
  since_ = Clock::now();
  try {
    while (step.steps() < steps_in_all_ && !training_.is_stopped && !training_.is_early) one_step();
  } catch (...) {
    save_what_is_left();
    folder_.reset();
    throw;
  }
  save_at_the_end();
  folder_.reset();
  return training_;
}

void Trainer::State::one_step() {
  const std::int64_t number = step.steps() + 1;
  if (schedule_) step.set_plan(schedule_->at(number));
  const Committed done = step.run(next_batch());
  training_.loss = done.loss();
  training_.events.insert(training_.events.end(), done.events.begin(), done.events.end());
  const auto now = Clock::now();
  after_step(done, Seconds(now - std::exchange(since_, now)).count());
}

// A loader that runs out of memory is asked for the same batch once more.
Tensors Trainer::State::next_batch() {
  if (first_) return *std::exchange(first_, std::nullopt);
  try {
    return batches_.next();
  } catch (...) {
    if (!libtorch::is_out_of_memory(std::current_exception())) throw;
  }
  memory::clear_gpu_memory();
  if (batches_.go_to) batches_.go_to(position_);
  return batches_.next();
}

// A rank that trains nothing has none.
double Trainer::State::learning_rate() {
  for (std::size_t rank = 0; rank < step.devices().size(); ++rank)
    if (const auto rate = step.optimizer(rank).learning_rate()) return *rate;
  return 0;
}

void Trainer::State::after_step(const Committed& done, double seconds) {
  begin_files();
  if (checkpoints_) checkpoints_->look();
  if (batches_.position) position_ = batches_.position();
  training_.steps = done.step;
  training_.rows += done.rows;
  const double rate = static_cast<double>(done.rows) / std::max(seconds, 1e-9);
  rows_per_s_ = rows_per_s_ == 0 ? rate : 0.9 * rows_per_s_ + 0.1 * rate;
  const std::int64_t left = steps_in_all_ - done.step;
  const Progress progress{.committed = done,
                          .loss = training_.loss,
                          .learning_rate = learning_rate(),
                          .step = done.step,
                          .steps = steps_in_all_,
                          .epoch = (done.step - 1) / batches_.per_epoch + 1,
                          .rows_per_s = rows_per_s_,
                          .seconds_left = static_cast<double>(left * done.rows) / rows_per_s_};
  const auto now = memory_now();
  if (files_) files_->step(progress, json_of(now));
  if (options_.listener.on_step) options_.listener.on_step(progress);
  if (!std::isfinite(training_.loss) && !std::exchange(said_not_finite_, true))
    say("the loss of step " + std::to_string(done.step) +
        " is not a finite number; a smaller learning rate may help, or a limit on gradients");
  for (const auto& [rank, card] : now)
    if (const auto growth = leaks_[rank].after(card.device, done.plan, done.step, card.allocated))
      say(*growth);
  watch_memory(done.step);
  const bool ends_epoch = done.step % batches_.per_epoch == 0;
  const bool is_due =
      options_.evaluate_every > 0 ? done.step % options_.evaluate_every == 0 : ends_epoch;
  if (evaluation_ && (is_due || left == 0)) evaluate_and_keep_best();
  if (ends_epoch) say_epoch(progress.epoch);
  const bool is_asked = options_.listener.should_save && options_.listener.should_save();
  if (is_asked || (options_.save_every > 0 && done.step % options_.save_every == 0)) save();
  since_ = Clock::now();  // the next step's time has no evaluation and no saving in it
  if (options_.listener.should_stop && options_.listener.should_stop()) training_.is_stopped = true;
}

// ---- Memory between steps ----

void Trainer::State::watch_memory(std::int64_t number) {
  const bool clears = options_.clear_cache_every > 0 && number % options_.clear_cache_every == 0;
  const bool looks = options_.check_memory_every > 0 && number % options_.check_memory_every == 0;
  if (!clears && !looks) return;
  using Care = detail::NeighbourWatch::Care;
  bool shrinks = false;
  for (const auto& [rank, now] : memory_now()) {
    if (now.device.is_cpu()) continue;
    if (clears) memory::memory_of(now.device).empty_cache();
    const Care care = looks ? neighbours_[rank].look(now) : Care::none;
    shrinks = shrinks || care == Care::shrink;
    if (care == Care::trim) trim(now, number);
  }
  if (shrinks) shrink();
}

void Trainer::State::trim(const memory::GpuMemoryStats& now, std::int64_t number) {
  memory::memory_of(now.device).empty_cache();
  tell({.kind = Event::Kind::trim,
        .step = number,
        .free = now.free,
        .cached = now.reserved - now.allocated,
        .neighbours = *now.total - *now.free - now.reserved,
        .device = step.devices().size() > 1 ? now.device.str() : "",
        .from = step.plan(),
        .to = step.plan()});
}

void Trainer::State::shrink() {
  if (schedule_ || training_.steps == 0) return;
  if (const auto event = step.shrink(std::max<std::int64_t>(training_.rows / training_.steps, 1)))
    tell(*event);
}

// ---- Evaluation and checkpoints ----

// As the schedule or the options say. Otherwise those of the training step, which fit: a forward
// pass needs less than a step of the same rows.
std::int64_t Trainer::State::evaluation_rows() const {
  const auto given = schedule_ ? schedule_->evaluation_at(step.steps()) : std::nullopt;
  if (given || options_.evaluation.micro_batch != 0)
    return given.value_or(options_.evaluation.micro_batch);
  const bool has_trained = training_.steps > training_.resumed_from.value_or(0);
  const Plan plan = has_trained || rows_ == 0 ? step.plan() : step.first_plan(rows_, step.usable());
  return plan.micro_batch;
}

Evaluated Trainer::State::evaluate() {
  if (!evaluation_)
    throw UsageError(expectation("Trainer::evaluate", "batches for evaluation", "none"));
  if (evaluation_batches_->go_to) evaluation_batches_->go_to(evaluation_start_);
  evaluation_->set_micro_batch(evaluation_rows());
  const Evaluated result = evaluation_->run(*evaluation_batches_, step.steps());
  if (const auto news = step.news_of_spill()) tell(*news);
  return result;
}

// After a failure: whatever keeps this from being saved is less important than the failure.
void Trainer::State::save_what_is_left() {
  const std::exception_ptr failure = std::current_exception();
  try {
    if (libtorch::is_out_of_memory(failure)) say_memory("out of memory, and no plan is left");
    save_at_the_end();
  } catch (const std::exception& error) {
    const auto* const ours = dynamic_cast<const Error*>(&error);
    say("no checkpoint of step " + std::to_string(step.steps()) + ": " +
        (ours != nullptr ? ours->sentence() : error.what()));
  }
}

// ---- Trainer ----

Trainer::Trainer(torch::nn::Module& module, optim::Optimizer& optimizer, Objective objective,
                 Batches batches, TrainerOptions options, std::optional<Batches> evaluation)
    : Trainer(Team{.ranks = {{module, optimizer, std::move(objective)}}}, std::move(batches),
              std::move(options), std::move(evaluation)) {}
Trainer::Trainer(const Team& team, Batches batches, TrainerOptions options,
                 std::optional<Batches> evaluation)
    : state_(std::make_unique<State>(team, std::move(batches), std::move(options),
                                     std::move(evaluation))) {}
Trainer::~Trainer() = default;

std::optional<FoundCheckpoint> Trainer::prepare() {
  return state_->prepare();
}
Trained Trainer::run() {
  return state_->run();
}
const Trained& Trainer::so_far() const {
  return state_->so_far();
}
Evaluated Trainer::evaluate() {
  return state_->evaluate();
}
Step& Trainer::step() {
  return state_->step;
}
std::shared_ptr<RunFolder> Trainer::folder() {
  return state_->folder();
}
std::optional<std::int64_t> Trainer::load_best_weights() {
  return state_->load_best_weights();
}

}  // namespace headroom::train
