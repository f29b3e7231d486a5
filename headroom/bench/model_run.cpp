#include "headroom/bench/model_run.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "headroom/base/time.h"
#include "headroom/libtorch/failure.h"
#include "headroom/memory/clear.h"
#include "headroom/memory/memory_statistics.h"
#include "headroom/recipe/recipe.h"
#include "headroom/train/trainer.h"

namespace headroom::bench {
namespace {

using train::Tensors;

class Run {
 public:
  Run(const config::Training& training, const std::vector<c10::Device>& devices,
      const ModelRunOptions& options)
      : training_(training), devices_(devices), options_(options) {}

  // What is built lives within this call.
  void go(ModelRun& run) {
    run_ = &run;
    recipe::Recipe recipe = recipe::make(training_, devices_);
    say(recipe.model.words);
    run.samples = recipe.data.train->set().size();
    run.steps = recipe.steps;
    for (const c10::Device device : devices_)
      curves_.push_back(std::make_unique<MemoryCurve>(device));
    train::EvaluationOptions evaluates{.micro_batch = recipe.step.plan.micro_batch,
                                       .autocast = recipe.step.autocast};
    if (options_.guide) options_.guide(recipe.step, evaluates);
    train::Evaluation evaluation(recipe.team, evaluates);
    if (!run.is_dry) {
      run.loss_before = evaluate(recipe, evaluation);
      static_cast<void>(memory::clear_gpu_memory());
      reset_peaks();
    }
    if (run.is_dry)
      run_dry(recipe);
    else
      run_real(recipe);
    if (run.is_stopped) return;
    measure_steps();
    reset_peaks();
    const double loss = evaluate(recipe, evaluation);
    if (!run.is_dry) run.loss_after = loss;
    for (std::size_t rank = 0; rank < devices_.size(); ++rank)
      run.cards[rank].evaluation_reserved =
          memory::get_gpu_memory_stats(devices_[rank]).max_reserved;
  }
  // Also of steps that failed.
  void measure_steps() {
    for (std::size_t rank = 0; rank < devices_.size(); ++rank) {
      CardRun& card = run_->cards[rank];
      if (card.peak_reserved > Bytes{}) continue;  // measured
      const memory::GpuMemoryStats now = memory::get_gpu_memory_stats(devices_[rank]);
      card.peak_requested = now.max_requested;
      card.peak_reserved = now.max_reserved;
      if (rank < curves_.size()) card.over_time = curves_[rank]->points();
    }
  }

 private:
  void say(std::string_view line) const {
    if (options_.on_line) options_.on_line(line);
  }
  void reset_peaks() const {
    for (const c10::Device device : devices_) memory::reset_peak_memory_stats(device);
  }
  void hear(const train::Event& event) const {
    run_->events.push_back(event);
    say(to_string(event));
    if (options_.on_event) options_.on_event(event);
  }
  [[nodiscard]] bool must_stop() const { return options_.should_stop && options_.should_stop(); }

  void begin_step() {
    for (const auto& curve : curves_) curve->begin_step();
  }
  void end_step(const recipe::Recipe& recipe) {
    for (const auto& curve : curves_) curve->end_step();
    if (++run_->steps_run == 1) know_resident(recipe);
    if (options_.on_step) options_.on_step(run_->steps_run, run_->steps);
  }

  // The first step makes the optimizer's states.
  void know_resident(const recipe::Recipe& recipe) {
    for (std::size_t rank = 0; rank < devices_.size(); ++rank)
      run_->cards[rank].resident =
          recipe::resident_of(*recipe.model.ranks[rank], *recipe.model.optimizers[rank]);
  }

  // ---- Dry steps ----

  [[nodiscard]] bool repeats_itself() const {
    return std::all_of(curves_.begin(), curves_.end(),
                       [](const auto& curve) { return curve->repeats_itself(); });
  }

  void run_dry(recipe::Recipe& recipe) {
    recipe.step.prices = false;  // the plan is what is measured
    recipe.step.adapts = false;
    recipe.step.on_event = [this](const train::Event& event) { hear(event); };
    train::Step step(recipe.team, recipe.step);
    const std::int64_t rows = recipe.data.train->options().batch_size, whole = run_->samples / rows;
    const auto run_one = [&](const Tensors& batch) {
      begin_step();
      static_cast<void>(step.run(batch));
      end_step(recipe);
    };
    for (std::int64_t i = 0; i < whole && !repeats_itself() && !(run_->is_stopped = must_stop());
         ++i)
      run_one(recipe.batches.next());
    if (run_->is_stopped) return;
    if (whole < run_->steps) {
      measure_steps();
      reset_peaks();
      recipe.data.train->set_position({.epoch = 0, .example = whole * rows});
      run_one(recipe.batches.next());
      for (std::size_t rank = 0; rank < devices_.size(); ++rank) {
        CardRun& card = run_->cards[rank];
        card.last_reserved = memory::get_gpu_memory_stats(devices_[rank]).max_reserved;
        card.over_time = curves_[rank]->points();
      }
    }
  }

  [[nodiscard]] double evaluate(const recipe::Recipe& recipe, train::Evaluation& evaluation) const {
    train::Batches batches = recipe::batches_of(recipe.data.evaluation, training_);
    if (run_->is_dry) batches.per_epoch = 1;  // all are alike
    return evaluation.run(batches).loss;
  }

  // ---- Real steps ----

  void run_real(const recipe::Recipe& recipe) {
    const config::Resolved& config = training_.config;
    Clock::time_point begun = Clock::now();
    train::TrainerOptions options{.step = recipe.step,
                                  .check_memory_every = config.whole("check_memory_every_n_steps"),
                                  .emergency_clean_above = config.number("emergency_clean_above"),
                                  .clear_cache_every = config.whole("clear_cache_every_n_steps")};
    options.listener.on_step = [&](const train::Progress&) {
      run_->step_seconds.push_back(Seconds(Clock::now() - begun).count());
      end_step(recipe);
      begin_step();
      begun = Clock::now();
    };
    options.listener.on_event = [this](const train::Event& event) { hear(event); };
    options.listener.should_stop = [this] { return must_stop(); };
    train::Trainer trainer(recipe.team, recipe.batches, std::move(options));
    trainer.prepare();
    begin_step();
    begun = Clock::now();
    run_->is_stopped = trainer.run().is_stopped;
  }

  const config::Training& training_;
  const std::vector<c10::Device>& devices_;
  const ModelRunOptions& options_;
  ModelRun* run_ = nullptr;
  std::vector<std::unique_ptr<MemoryCurve>> curves_;
};

Json points_json(const std::vector<MemoryPoint>& points) {
  Json all = Json::array();
  for (const MemoryPoint& point : points)
    all.push_back({point.at, point.requested.count, point.reserved.count});
  return all;
}

}  // namespace

Json to_json(const ModelRun& run) {
  Json cards = Json::array(), events = Json::array();
  for (const CardRun& card : run.cards)
    cards.push_back({{"resident_bytes", card.resident.count},
                     {"peak_requested_bytes", card.peak_requested.count},
                     {"peak_reserved_bytes", card.peak_reserved.count},
                     {"last_reserved_bytes", card.last_reserved.count},
                     {"evaluation_reserved_bytes", card.evaluation_reserved.count},
                     {"left_bytes", card.left.count},
                     {"over_time", points_json(card.over_time)}});
  for (const train::Event& event : run.events) {
    events.push_back(train::to_json(event));
    events.back()["words"] = to_string(event);
  }
  return {{"dry", run.is_dry},
          {"stopped", run.is_stopped},
          {"samples", run.samples},
          {"steps", run.steps},
          {"steps_run", run.steps_run},
          {"step_s", run.step_seconds},
          {"loss_before", or_null(run.loss_before)},
          {"loss_after", or_null(run.loss_after)},
          {"events", std::move(events)},
          {"cards", std::move(cards)},
          {"no_room", or_null(run.no_room)}};
}

ModelRun run_model(const config::Training& training, const std::vector<c10::Device>& devices,
                   const ModelRunOptions& options) {
  ModelRun result{.is_dry = options.is_dry};
  result.cards.resize(devices.size());
  std::vector<Bytes> before;
  for (const c10::Device device : devices) {
    memory::reset_peak_memory_stats(device);
    before.push_back(memory::get_gpu_memory_stats(device).allocated);
  }
  {
    Run run(training, devices, options);
    try {
      run.go(result);
    } catch (...) {
      if (!libtorch::is_out_of_memory(std::current_exception())) throw;
      result.no_room = libtorch::judge(std::current_exception()).evidence;
    }
    run.measure_steps();
  }
  static_cast<void>(memory::clear_gpu_memory(/*force=*/true));
  for (std::size_t rank = 0; rank < devices.size(); ++rank)
    result.cards[rank].left = memory::get_gpu_memory_stats(devices[rank]).allocated - before[rank];
  return result;
}

}  // namespace headroom::bench
