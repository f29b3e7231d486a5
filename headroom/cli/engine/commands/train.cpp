// `headroom-engine train`: the training behind `headroom train`.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stop_token>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/base/interrupt.h"
#include "headroom/base/text.h"
#include "headroom/base/time.h"
#include "headroom/cli/core/training_folder.h"
#include "headroom/cli/core/view/plan_view.h"
#include "headroom/cli/engine/commands.h"
#include "headroom/cli/engine/train/budget.h"
#include "headroom/cli/engine/train/known_plan.h"
#include "headroom/cli/engine/train/loss_watch.h"
#include "headroom/cli/engine/train/memory_wait.h"
#include "headroom/cli/engine/train/plan_answer.h"
#include "headroom/cli/engine/train/run_options.h"
#include "headroom/cli/engine/train/run_settings.h"
#include "headroom/cli/engine/train/spill_words.h"
#include "headroom/cli/engine/train/training_document.h"
#include "headroom/cli/engine/train/training_machine.h"
#include "headroom/cli/engine/train/training_place.h"
#include "headroom/cli/engine/train/training_record.h"
#include "headroom/cli/engine/train/training_status.h"
#include "headroom/cli/engine/train/training_story.h"
#include "headroom/cli/engine/train/training_view.h"
#include "headroom/gpu/catalogue.h"
#include "headroom/libtorch/failure.h"
#include "headroom/memory/count_cpu.h"
#include "headroom/memory/memory_statistics.h"
#include "headroom/memory/summary.h"
#include "headroom/plan/plan_report.h"
#include "headroom/recipe/recipe.h"
#include "headroom/recipe/result.h"
#include "headroom/train/trainer.h"

namespace headroom::cli {
namespace {

namespace fs = std::filesystem;

// Batch systems send it before they end a job.
std::atomic<bool> save_is_asked{false};

[[noreturn]] void out_of_memory(const std::string& sentence) {
  throw OutOfMemoryError(Complaint{{}, sentence}, Bytes{0});
}

class Run {
 public:
  Run(const Json& request, const Interrupt& interrupt)
      : request_(request),
        interrupt_(interrupt),
        training_(training_of(request)),
        config_(training_.config),
        settings_(request, config_),
        machine_(request),
        watching_(request, machine_, training_),
        losses_(config_.whole("stop_on_nan")),
        is_json_(request.at("json").get<bool>()),
        goes_on_(request.at("goes_on").get<bool>()) {}

  ExitCode go();
  // The trace of a run that failed, too: it shows how the memory filled.
  void write_what_was_watched() {
    if (trainer_) watching_.know(made_);
    try {
      watching_.write(story_.notes());
    } catch (const Error& error) {
      view_.say("the trace is not written: " + error.sentence());
    }
  }

 private:
  void make();
  [[nodiscard]] train::TrainerOptions options();
  void begin();
  void save_result(const train::Trained& done);
  [[nodiscard]] bool is_allowed_by_budget() {
    return allows_budget(training_, data_.outputs, made_, trainer_->step().devices(), view_);
  }
  void tell_of_injections();
  void know_memory();
  void take_known_plan();
  ExitCode show_plan();
  [[nodiscard]] std::optional<train::PerStage> most_when_alone();
  [[nodiscard]] BesideOthers beside_others();
  ExitCode evaluate();
  ExitCode train();
  void tell_of_failure();
  void show_memory(const std::string& text) const { is_json_ ? print_error(text) : print(text); }
  // The highest of all cards.
  [[nodiscard]] Bytes peak() {
    Bytes highest;
    for (const c10::Device device : trainer_->step().devices())
      highest = std::max(highest, memory::get_gpu_memory_stats(device).max_allocated);
    return highest;
  }

  const Json& request_;
  const Interrupt& interrupt_;
  const config::Training training_;
  const config::Resolved& config_;  // of it
  RunSettings settings_;
  const memory::CountCpuMemory counting_;
  TrainingMachine machine_;
  TrainingRecord watching_;
  LossWatch losses_;
  bool is_json_, goes_on_;
  TrainingView view_;
  recipe::Data data_;
  recipe::Model made_;
  TrainingStory story_;
  std::optional<TrainingStatus> status_;  // of a run that trains
  std::optional<train::Trainer> trainer_;
  std::shared_ptr<RunFolder> folder_;  // of a run that trains
  std::optional<plan::Setup> setup_;
  train::StepOptions step_options_;
  std::int64_t effective_batch_ = 0;
};

void Run::make() {
  data_ = recipe::data_of(training_, machine_.own.front().is_cuda());
  view_.say(data_.words);
  effective_batch_ = data_.train->options().batch_size;
  made_ = model_where_it_fits(machine_, training_, data_.outputs, !goes_on_, view_, story_.before,
                              [this](const train::OomReport& report) {
                                if (!request_.at("dry_run").get<bool>()) story_.explain(report);
                              });
  view_.say(made_.words);
  std::optional<train::Batches> evaluation;
  if (data_.evaluation) evaluation = recipe::batches_of(data_.evaluation, training_);
  trainer_.emplace(recipe::team_of(training_, made_), recipe::batches_of(data_.train, training_),
                   options(), std::move(evaluation));
  const auto usable = trainer_->step().usable();
  setup_ =
      setup_of(training_, machine_.own, usable ? std::optional(usable->least()) : std::nullopt);
}

train::TrainerOptions Run::options() {
  const std::int64_t steps = recipe::steps_of(config_, *data_.train);
  train::TrainerOptions options = trainer_options_of(request_, config_, steps);
  step_options_ = recipe::step_options_of(training_, steps);
  if (!made_.quantised.empty()) step_options_.plan.techniques.insert(made_.quantised);
  step_options_.ladder.elsewhere = [this] { return machine_.others(config_); };
  machine_.share.guide(step_options_, options.evaluation,
                       [this] { return trainer_ ? trainer_->step().devices() : machine_.own; });
  if (config_.yes("wait_for_gpu"))
    step_options_.wait_for_memory = [this](const train::Failure&) {
      return wait_for_memory(beside_others());
    };
  options.step = step_options_;
  options.listener = {.on_step =
                          [this](const train::Progress& now) {
                            settings_.save(*folder_);
                            if (now.step == 1 && machine_.is_cpu())
                              view_.say("on the CPU the whole run takes about " +
                                        duration_text(Seconds(now.seconds_left)));
                            losses_.hear(now.loss);
                            view_.show(now, peak());
                            if (const auto news = machine_.share.news()) view_.say(*news);
                            status_->on_devices(trainer_->step().devices());
                            status_->show(now, effective_batch_);
                          },
                      .on_event =
                          [this](const train::Event& event) {
                            watching_.hear(event);
                            if (setup_ && event.from != event.to) know_memory();
                            story_.hear(event);
                            view_.show_event(event);
                            if (status_) status_->hear(event);
                          },
                      .on_evaluation =
                          [this](const train::Evaluated& result, std::int64_t step) {
                            view_.show_evaluation(result, step);
                            if (const std::string lost = losses_.sentence(); !lost.empty())
                              view_.say(lost);
                            if (status_) status_->publish_survived();
                          },
                      .on_line = [this](std::string_view line) { view_.say(line); },
                      .should_stop = [this] { return interrupt_.happened() || losses_.is_lost(); },
                      .should_save = [] { return save_is_asked.exchange(false); }};
  if (const std::int64_t warm = config_.whole("warmup_steps"); warm >= steps)
    view_.say(
        fmt::format("warmup_steps={} of a run of {} steps: the learning rate reaches its value in "
                    "the last one only",
                    warm, steps));
  return options;
}

// With the memory that there was when the plan was chosen: a neighbour that made it small may have
// left before the end, and then a larger one has not failed with what there is now.
void Run::know_memory() {
  if (const auto usable = trainer_->step().usable()) setup_->free = usable->least();
}

// A run with injected failures neither uses remembered plans nor adds to them.
void Run::take_known_plan() {
  if (config_.is_given("plan_schedule") || machine_.is_cpu() || watching_.disturbs()) return;
  train::Step& step = trainer_->step();
  const auto plan = step.keeps_plan() ? std::nullopt : remembered(*setup_, step, effective_batch_);
  if (!plan || *plan == step.plan()) return;
  step.set_plan(*plan);
  view_.say("the plan that worked last time: " + to_string(*plan));
}

// Prices the plans, goes on from a checkpoint, and says how the run begins.
void Run::begin() {
  if (!machine_.is_cpu()) view_.say("pricing the plans of a step, by dry runs");
  const auto found = trainer_->prepare();
  folder_ = trainer_->folder();
  settings_.tell(found ? &*found : nullptr, view_);
  if (!found) take_known_plan();
  const PlanAnswer answer = answer_beside_others(beside_others());
  view_.say(to_string(answer));
  if (answer.needed) plan::write_plan_report({answer.needed->largest(), to_string(answer.plan)});
  if (!is_allowed_by_budget())
    out_of_memory("the budget does not allow this run; nothing was trained");
}

void Run::save_result(const train::Trained& done) {
  if (!done.not_saved.empty()) view_.say(done.not_saved);
  if (done.is_early) {
    view_.say("stopped early: evaluations got no better");
    const auto best = trainer_->load_best_weights();
    view_.say(best ? "the result has the weights of the best evaluation, after step " +
                         std::to_string(*best)
                   : "no sound checkpoint of the best evaluation: the result has the last weights");
  }
  folder_->claim(result_name(config_));
  const fs::path folder = fs::path(config_.text("out")) / result_name(config_);
  recipe::save(made_, data_, config_, folder);
  view_.say("weights in " + folder.string());
}

// A test of survival that met nothing proves nothing.
void Run::tell_of_injections() {
  for (const std::string& one : watching_.not_injected())
    view_.say(fmt::format("--inject {} did not happen: the run has no such request", one));
}

ExitCode Run::show_plan() {
  if (!trainer_->prepare()) take_known_plan();
  PlanAnswer answer = plan_answer(trainer_->step(), effective_batch_);
  const bool is_busy = !answer.fits && fits_when_alone(beside_others());
  const bool is_allowed = is_allowed_by_budget();
  const std::string words = to_string(answer);
  answer.fits = answer.fits && is_allowed;
  const auto cards = machine_.rates();
  const double seconds = step_seconds(training_, training_.model_for(data_.outputs), answer, cards);
  if (is_json_)
    print(to_line(to_json(answer, machine_.own, seconds, cards.front()->brief)) + "\n");
  else
    print(fmt::format("{}\nabout {} a step, with the times of {}{}; nothing was trained\n", words,
                      step_time_text(seconds), cards.front()->brief,
                      answer.fits ? "" : "; it does not fit"));
  return answer.fits ? kOk : is_busy && is_allowed ? kBusy : kDoesNotFit;
}

// Of a card of each stage.
std::optional<train::PerStage> Run::most_when_alone() {
  train::Step& step = trainer_->step();
  const std::vector<c10::Device> devices = step.devices();
  std::vector<std::optional<Bytes>> least(static_cast<std::size_t>(step.layout().stages));
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    const auto most = machine_.share.most_when_alone(devices[rank]);
    if (!most) return {};
    auto& of_stage = least[rank % least.size()];
    of_stage = std::min(of_stage.value_or(*most), *most);
  }
  std::vector<Bytes> all;
  for (const std::optional<Bytes>& one : least) all.push_back(*one);
  return train::PerStage(std::move(all));
}

BesideOthers Run::beside_others() {
  train::Step& step = trainer_->step();
  return {.step = step,
          .rows = effective_batch_,
          .alone = most_when_alone(),
          .config = config_,
          .interrupt = interrupt_,
          .view = view_};
}

ExitCode Run::evaluate() {
  if (!data_.evaluation)
    throw InputError(
        "val_data",
        fmt::format("expected data to evaluate on, such as {}, received none",
                    (fs::path(config_.text("data_dir")) / config_.text("val_data")).string()));
  if (!trainer_->prepare() && request_.at("resume").get<bool>())
    throw InputError(
        "resume", fmt::format("expected a checkpoint in {}, received none", config_.text("out")));
  const train::Evaluated result = trainer_->evaluate();
  watching_.know(made_);
  watching_.write(story_.notes(), /*survived=*/true);
  tell_of_injections();
  if (is_json_)
    print(to_line({{"schema", 1},
                   {"val_loss", result.loss},
                   {"val_accuracy", or_null(result.accuracy)},
                   {"rows", result.rows},
                   {"not_injected", watching_.not_injected()},
                   {"predictions", recipe::predictions_of(result, data_)}}) +
          "\n");
  else
    view_.show_evaluation(result, trainer_->step().steps());
  return kOk;
}

// Reports a run that memory ended, in words or as JSON for a script.
void Run::tell_of_failure() {
  if (is_json_)
    print(to_line(story_.document_of_failure(trainer_ ? &*trainer_ : nullptr, config_,
                                             effective_batch_)) +
          "\n");
}

ExitCode Run::train() {
  status_.emplace(training_, request_.at("uuids").get<std::vector<std::string>>());
  status_->begin(machine_.own);
  for (const train::Event& event : story_.before) status_->hear(event);
  begin();
  if (interrupt_.happened()) return interrupt_.exit_code();
  const fs::path out = config_.text("out");
  const std::stop_callback tell(interrupt_.token(), [] {
    print_error(
        "\nheadroom train: finishing the step, then saving; a second signal ends the run at "
        "once, without a checkpoint\n");
  });
  train::Trained done;
  try {
    done = trainer_->run();
  } catch (...) {
    const std::exception_ptr failure = std::current_exception();
    view_.end();
    if (!libtorch::is_out_of_memory(failure)) throw;
    story_.explain(trainer_->step(), step_options_,
                   [this](c10::Device device) { return machine_.holders(device); });
    if (interrupt_.happened()) return interrupt_.exit_code();  // while it waited for memory
    tell_of_failure();
    const std::int64_t steps = trainer_->step().steps();
    out_of_memory(
        "memory ran out in every plan; " +
        (steps == 0 && !fs::exists(out / "checkpoint-00000000")
             ? "no step was committed"
             : fmt::format("the last committed step, {}, is saved in {}", steps, out.string())));
  }
  view_.end();
  train::Step& step = trainer_->step();
  if (step.spilled() && step.spilled()->refused > 0)
    view_.say(spill_words(step, effective_batch_, training_, training_.model_for(data_.outputs),
                          machine_.rates()));
  const std::string lost = losses_.sentence();
  if (!lost.empty())
    view_.say(fmt::format("{}: these weights are useless; try a smaller lr{}", lost,
                          losses_.is_lost() ? "" : ", and stop_on_nan=10 to end such a run early"));
  if (losses_.is_lost() && !interrupt_.happened()) {
    view_.say("stopped after step " + std::to_string(done.steps));
  } else if (done.is_stopped) {
    if (!done.not_saved.empty()) throw WriteError(done.not_saved);
    view_.say(fmt::format("stopped after step {} of a run in {}; --resume continues it", done.steps,
                          out.string()));
  } else {
    save_result(done);
    train::Plan plan = step.plan();
    plan.micro_batch = largest_part(plan, step.layout().rows_of_largest(effective_batch_));
    const auto spilled = step.spilled();
    if (!machine_.is_cpu() && !watching_.disturbs() && (!spilled || spilled->refused == 0))
      remember(*setup_, plan, peak(), view_);
  }
  watching_.know(made_);
  watching_.write(story_.notes(), /*survived=*/true);
  tell_of_injections();
  for (const c10::Device device : step.devices()) show_memory(memory::short_memory_summary(device));
  if (is_json_) {
    Json document = document_of(done, step, config_, effective_batch_, story_.before);
    document["not_injected"] = watching_.not_injected();
    print(to_line(document) + "\n");
  }
  if (interrupt_.happened()) return done.is_stopped ? interrupt_.exit_code() : kOk;
  return losses_.is_lost() ? kFailed : kOk;
}

ExitCode Run::go() {
  try {
    make();
  } catch (const OutOfMemoryError& error) {
    if (!request_.at("dry_run").get<bool>()) tell_of_failure();
    if (!request_.at("dry_run").get<bool>()) throw;
    print_error(fmt::format("headroom train: {}\n", error.sentence()));
    return kDoesNotFit;
  }
  if (interrupt_.happened()) return interrupt_.exit_code();
  if (request_.at("dry_run").get<bool>()) return show_plan();
  if (request_.at("eval_only").get<bool>()) return evaluate();
  return train();
}

}  // namespace

ExitCode run_train(const Json& request) {
  const Interrupt interrupt;
  std::signal(SIGPIPE, SIG_IGN);  // `2>&1 | head` must not end a run
  std::signal(SIGXFSZ, SIG_IGN);  // a file that `ulimit -f` cuts is one that cannot be written
  std::signal(SIGUSR1, [](int) { save_is_asked = true; });
  Run run(request, interrupt);
  try {
    return run.go();
  } catch (...) {
    run.write_what_was_watched();
    throw;
  }
}

}  // namespace headroom::cli
