// The folder of a run: checkpoints and records, and how they are resumed.
#include <cmath>
#include <nlohmann/json.hpp>

#include "headroom/base/error.h"
#include "headroom/train/detail/checks.h"
#include "headroom/train/detail/trainer_state.h"

namespace headroom::train {

// Before anything that takes long: another run may write there.
void Trainer::State::take_folder() {
  const std::filesystem::path from = options_.out.empty() ? options_.resume_from : options_.out;
  if (from.empty()) return;
  if (!options_.out.empty() && !folder_) folder_ = std::make_shared<RunFolder>(options_.out);
  if (checkpoints_) return;
  const auto saved = [this](std::int64_t number) {
    tell({.kind = Event::Kind::checkpoint, .step = number, .from = step.plan(), .to = step.plan()});
  };
  checkpoints_.emplace(from, options_.keep_last,
                       detail::RunCheckpoints::Hears{saved, [this](auto line) { say(line); }});
}

static Json to_json(const parallel::Layout& layout) {
  return {{"replicas", layout.replicas}, {"stages", layout.stages}};
}

void Trainer::State::restore(const FoundCheckpoint& found) {
  const Json more = parse_json(found.more, (found.folder / "state.json").string());
  position_ = more.at("position").get<std::string>();
  if (batches_.go_to) batches_.go_to(position_);
  training_.resumed_from = training_.steps = found.step;
  training_.rows = more.at("rows").get<std::int64_t>();
  const Json& loss = more.at("loss");  // JSON has no number for NaN
  training_.loss = loss.is_null() ? std::nan("") : loss.get<double>();
  if (!more.at("evaluation").is_null())
    training_.evaluation = evaluated_from(more.at("evaluation"));
  if (!more.at("best").is_null()) training_.best = evaluated_from(more.at("best"));
  worse_ = more.at("worse").get<std::int64_t>();
  training_.is_early = options_.patience > 0 && worse_ >= options_.patience;
  Plan plan = found.plan;  // of a run whose model may have had other techniques
  std::erase_if(plan.techniques, [&](const std::string& name) {
    return name != detail::kOffload && !step.objective().techniques.contains(name);
  });
  // Parts suit the number of stages that wait for each other.
  const Json layout = more.value("layout", to_json(parallel::Layout()));
  if (layout != to_json(step.layout())) plan.micro_batch = options_.step.plan.micro_batch;
  step.set_plan(plan);
  for (const std::string& refused : found.refused) say("not used: " + refused);
  if (!found.same_optimizer)
    say("the checkpoint is of an optimizer of another kind: the optimizer's states start empty");
  if (!found.same_random_numbers)
    say("the checkpoint was saved on another kind of device; dropout will use different random "
        "numbers from here on");
  tell({.kind = Event::Kind::restore, .step = found.step, .from = plan, .to = plan});
}

std::string Trainer::State::place() const {
  return to_line({{"position", position_},
                  {"rows", training_.rows},
                  {"loss", training_.loss},
                  {"evaluation", training_.evaluation ? to_json(*training_.evaluation) : Json()},
                  {"best", training_.best ? to_json(*training_.best) : Json()},
                  {"worse", worse_},
                  {"layout", to_json(step.layout())}});
}

// Not before there is something to write: a failure before the first commit leaves an earlier run
// where it is.
void Trainer::State::begin_files() {
  if (files_ || options_.out.empty()) return;
  if (training_.resumed_from)
    checkpoints_->put_refused_away();
  else if (const auto moved = folder_->set_aside())
    say(to_string(*moved));
  if (evaluation_) folder_->claim("best");
  files_.emplace(*folder_, options_.out, begun_);
  if (const auto words =
          checkpoints_->forecast(step, options_.save_every > 0, evaluation_.has_value()))
    say(*words);
}

void Trainer::State::evaluate_and_keep_best() {
  const Evaluated result = evaluate();
  training_.evaluation = result;
  if (files_) files_->evaluation(result, step.steps(), evaluation_->micro_batch());
  if (options_.listener.on_evaluation) options_.listener.on_evaluation(result, step.steps());
  if (training_.best && !is_better(result, *training_.best)) {
    training_.is_early = ++worse_ >= options_.patience && options_.patience > 0;
  } else {
    worse_ = 0;
    training_.best = result;
  }
  if (files_)
    checkpoints_->save_if_best(step, place(), result, [this] { files_->write_waiting(); });
}

// Lines first: a run that goes on after this checkpoint has those of all steps before it.
void Trainer::State::save() {
  if (files_) checkpoints_->save(step, place(), [this] { files_->write_waiting(); });
}

// A run that has committed nothing leaves an earlier one in its folder alone.
void Trainer::State::save_at_the_end() {
  if (!checkpoints_ || options_.out.empty()) return;
  save();
  checkpoints_->wait();
  // Missing lines are not a reason to lose the work, too.
  if (files_ ? !checkpoints_->failure().empty() : !folder_->has_a_run())
    checkpoints_->save(step, place());
  checkpoints_->wait();
  training_.not_saved = checkpoints_->failure();
}

std::shared_ptr<RunFolder> Trainer::State::folder() {
  if (!folder_) throw UsageError(expectation("Trainer::folder", "a run with `out`", "none"));
  return folder_;
}

std::optional<std::int64_t> Trainer::State::load_best_weights() {
  return checkpoints_ ? checkpoints_->load_best_weights(step) : std::nullopt;
}

}  // namespace headroom::train
