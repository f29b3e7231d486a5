#include "headroom/supervise/supervision.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/base/text.h"
#include "headroom/edit/edited_files.h"
#include "headroom/supervise/checkpoints.h"
#include "headroom/supervise/earlier_runs.h"
#include "headroom/supervise/next_step.h"
#include "headroom/supervise/run_history.h"

namespace headroom::supervise {
namespace {

using edit::Quantity;

// The end of the whole run.
struct End {
  Outcome outcome = Outcome::ended;
  int exit_code = 0;
  std::string sentence;
};

// Each phase returns the end of the run, or std::nullopt if the next phase follows.
class Supervision {
 public:
  Supervision(const Orders& orders, const Listener& listener, const edit::Knobs& knobs,
              Places& places, const RunTry& run)
      : orders_(orders), listener_(listener), knobs_(knobs), places_(places), run_(run) {}

  Report run();

 private:
  void prepare();
  void open_history();
  // A failure to keep records must not end a job that runs.
  template <typename Work>
  void or_warn(const Work& work) const;

  // ---- Its place
  [[nodiscard]] std::optional<Bytes> remembered_need();
  [[nodiscard]] PlaceWish wish();
  [[nodiscard]] std::optional<End> take_place();
  [[nodiscard]] std::optional<End> without_place(const PlaceAnswer& answer);

  // ---- One try
  void begin_with_what_worked();
  void check_mapped_values() const;
  [[nodiscard]] edit::Changed values_of_this_try() const;
  [[nodiscard]] std::optional<End> change_files();
  void run_try();

  // ---- After it
  [[nodiscard]] std::optional<End> follow_try();
  void remember(const Try& last) const;
  void change_batch();
  [[nodiscard]] End end_without_change(std::string why);
  [[nodiscard]] std::string values_text() const;

  [[nodiscard]] bool is_first() const { return report_.tries.empty(); }
  [[nodiscard]] bool needs_room() const { return step_.kind == NextStep::Kind::find_room; }

  const Orders& orders_;
  const Listener& listener_;
  const edit::Knobs& knobs_;
  Places& places_;
  const RunTry& run_;
  const EarlierRuns earlier_{knobs_};
  std::optional<History> history_;

  long long batch_ = knobs_.value(Quantity::batch).value_or(1);
  long long accumulation_ = knobs_.value(Quantity::accumulation).value_or(1);
  bool told_need_ = false;
  std::optional<EarlierRuns::Beginning> begun_;  // instead of the command's own values
  NextStep step_;                                // after the last try
  std::optional<Place> place_;
  edit::EditedFiles files_;
  Report report_;
};

Report Supervision::run() {
  prepare();
  std::optional<End> end;
  while (!end) {
    end = take_place();
    if (end) break;
    begin_with_what_worked();
    end = change_files();
    if (end) break;
    run_try();
    end = follow_try();
  }
  listener_.tell_all(files_.put_back());
  report_.outcome = end->outcome;
  report_.exit_code = end->exit_code;
  report_.sentence = std::move(end->sentence);
  return std::move(report_);
}

void Supervision::prepare() {
  // Arguments that cannot be added are refused now, not after a night of training.
  if (!orders_.resume_arguments.empty())
    (void)knobs_.with_arguments(orders_.command, resume_arguments(orders_.resume_arguments, "x"));
  if (knobs_.has(Quantity::accumulation) && !knobs_.has(Quantity::batch))
    throw UsageError(expectation("--map", "a batch beside the accumulation",
                                 knobs_.name(Quantity::accumulation) + " alone",
                                 "--map \"--batch-size=batch\""));
  listener_.tell_all(knobs_.assumptions());
  const std::string why = knobs_.has(Quantity::batch) ? why_batch_stays(orders_, knobs_) : "";
  if (!why.empty())
    listener_.tell(fmt::format("{} will not be changed: {}", knobs_.name(Quantity::batch), why));
  open_history();
}

template <typename Work>
void Supervision::or_warn(const Work& work) const {
  try {
    work();
  } catch (const Error& error) {
    listener_.tell(error.sentence());
  }
}

// A history that the user named must be writable; the one in the state folder need not be.
void Supervision::open_history() {
  if (!orders_.history.empty()) {
    history_.emplace(orders_.history);
    return;
  }
  or_warn([&] {
    std::error_code ignored;  // then opening the file fails and says why
    std::filesystem::create_directories(state_dir(), ignored);
    history_.emplace(state_dir() / "runs.ndjson");
  });
}

// ---- Its place -------------------------------------------------------------------------------

std::optional<Bytes> Supervision::remembered_need() {
  if (!orders_.remember || places_.is_inside_lease()) return {};
  const std::optional<Bytes> need = earlier_.need(places_.fresh());
  if (need && !std::exchange(told_need_, true))
    listener_.tell(
        fmt::format("reserving {} on each card, from its use in earlier runs (--need, --forget)",
                    to_string(*need)));
  return need;
}

// A job of unknown need gets its cards exclusively, as far as they are free; a small leftover is
// not worth starting on.
PlaceWish Supervision::wish() {
  const std::optional<Bytes> need = orders_.need ? orders_.need : remembered_need();
  PlaceWish wish{.need = need ? *need : smallest_total(places_.fresh()).value_or(Bytes{0}) / 2,
                 .is_known = need.has_value(),
                 .timeout = orders_.wait_timeout};
  if (needs_room()) {
    wish.is_known = orders_.need.has_value();
    wish.need = std::max(wish.need, step_.room);
    wish.timeout = orders_.wait_for_more;
  }
  return wish;
}

std::optional<End> Supervision::take_place() {
  if (place_ && place_->lease && place_->lease->ended_by()) place_.reset();
  if (place_) {
    const auto cancelled = places_.wait_until_memory_is_back(*place_);
    if (cancelled)
      return End{.outcome = Outcome::cancelled, .exit_code = *cancelled, .sentence = {}};
    return {};
  }
  listener_.tell_all(files_.put_back());  // the user may edit them during the wait
  PlaceAnswer answer = places_.find(wish());
  report_.waited += answer.waited;
  if (!answer.place) return without_place(answer);
  place_ = std::move(answer.place);
  if (needs_room())
    listener_.tell(fmt::format("{}; trying again with more memory: {}",
                               cause_of(report_.tries.back()), place_->name()));
  return {};
}

std::optional<End> Supervision::without_place(const PlaceAnswer& answer) {
  if (answer.outcome == Outcome::cancelled)
    return End{.outcome = Outcome::cancelled,
               .exit_code = answer.exit_code,
               .sentence = needs_room() ? step_.why : ""};
  if (needs_room())
    return end_without_change(
        fmt::format("{}; more memory is not usable either: {}", step_.why, answer.sentence));
  return End{.outcome = answer.outcome, .exit_code = 0, .sentence = answer.sentence};
}

// ---- One try ---------------------------------------------------------------------------------

// Only in the first try: later ones have newer figures.
void Supervision::begin_with_what_worked() {
  begun_.reset();
  if (!orders_.remember || !is_first()) return;
  begun_ = earlier_.beginning(*place_, orders_.min_batch);
  if (!begun_) return;
  batch_ = begun_->batch;
  accumulation_ = begun_->accumulation;
  listener_.tell(fmt::format("beginning with {}, which worked here on {} (--forget ignores that)",
                             values_text(), local_timestamp(begun_->when).substr(0, 16)));
}

// Another run or the user may have edited a mapped file since it was read.
void Supervision::check_mapped_values() const {
  listener_.tell_all(edit::restore_leftovers(edit::mapped_files(orders_.maps)));
  const edit::Knobs now(orders_.maps, orders_.command);
  for (const Quantity quantity : {Quantity::batch, Quantity::accumulation})
    if (now.value(quantity) != knobs_.value(quantity))
      throw BusyError("run", knobs_.name(quantity) +
                                 " was changed while the run waited for cards; start it again");
}

edit::Changed Supervision::values_of_this_try() const {
  const bool changed = !is_first() || begun_;
  return changed ? knobs_.with(batch_, accumulation_) : edit::Changed{orders_.command, {}, {}};
}

// An end only if another program changed a file after a try: the tries are still reported.
std::optional<End> Supervision::change_files() {
  if (is_first()) check_mapped_values();
  try {
    files_.put(values_of_this_try().files);
  } catch (const Error& error) {
    if (is_first()) throw;
    const Try& last = report_.tries.back();
    return End{.outcome = Outcome::out_of_memory,
               .exit_code = last.end.exit_code,
               .sentence = fmt::format("{}, and it cannot be tried again with less: {}",
                                       cause_of(last), error.sentence())};
  }
  return {};
}

void Supervision::run_try() {
  edit::Changed now = values_of_this_try();
  std::optional<std::filesystem::path> checkpoint;
  if (!is_first() && !orders_.checkpoints.empty())
    checkpoint = newest_checkpoint(orders_.checkpoints, report_.tries.front().started);
  if (checkpoint)
    now.command =
        knobs_.with_arguments(now.command, resume_arguments(orders_.resume_arguments, *checkpoint));

  job::Launch launch{.command = std::move(now.command),
                     .environment = environment_of(*place_, orders_.devices, orders_.by_uuid),
                     .output_to_error = orders_.output_to_error};
  for (const std::string& variable : orders_.environment) launch.environment.push_back(variable);
  for (std::string& variable : now.environment) launch.environment.push_back(std::move(variable));
  if (place_->lease) launch.inherited.push_back(place_->lease->descriptor());
  if (listener_.starting) listener_.starting();

  Try one = run_(std::move(launch), *place_);
  one.number = static_cast<int>(report_.tries.size()) + 1;
  if (knobs_.has(Quantity::batch)) one.batch = batch_;
  if (knobs_.has(Quantity::accumulation)) one.accumulation = accumulation_;
  if (checkpoint) one.resumed_from = checkpoint->string();
  if (history_)
    if (const auto reason = history_->append(one)) listener_.tell(*reason);
  listener_.tell_all(remarks(one.end));
  report_.tries.push_back(std::move(one));
}

// ---- After it --------------------------------------------------------------------------------

std::optional<End> Supervision::follow_try() {
  const Try& last = report_.tries.back();
  const bool may_move = !places_.is_inside_lease();
  step_ = next_step(report_.tries, orders_, knobs_, may_move ? place_->room() : std::nullopt);
  if (step_.kind == NextStep::Kind::done) {
    if (last.worked() && orders_.remember) remember(last);
    const bool forced = last.ended_stalled && last.end.exit_code == 0;
    return End{.outcome = Outcome::ended,
               .exit_code = forced ? 128 + SIGTERM : last.end.exit_code,
               .sentence = step_.why};
  }
  if (begun_) or_warn([&] { earlier_.forget(*place_, *begun_); });
  report_.forensics = forensics_of(report_.tries);
  if (step_.kind == NextStep::Kind::give_up) return end_without_change(step_.why);
  if (step_.kind == NextStep::Kind::try_again) change_batch();
  if (needs_room()) place_.reset();
  return {};
}

// A batch is worth remembering only if larger ones failed: a small one that the user chose says
// nothing about sizes that would fit.
void Supervision::remember(const Try& last) const {
  const bool was_reduced = report_.tries.size() > 1;  // in this run; otherwise it is known already
  if (was_reduced && batch_ < knobs_.value(Quantity::batch).value_or(1))
    or_warn([&] { earlier_.remember_batch(*place_, batch_, accumulation_, last.card_peak); });
  if (last.card_peak) or_warn([&] { earlier_.remember_use(*place_, *last.card_peak); });
}

void Supervision::change_batch() {
  const auto change = [&](Quantity quantity, long long& value, long long to) {
    report_.forensics->changes.push_back({knobs_.name(quantity), value, to});
    value = to;
  };
  change(Quantity::batch, batch_, *step_.batch);
  if (step_.accumulation) change(Quantity::accumulation, accumulation_, *step_.accumulation);
  listener_.tell(fmt::format("{}; trying again with {}: {}", cause_of(report_.tries.back()),
                             values_text(), step_.why));
}

// The report of the out-of-memory tells the reason, too.
End Supervision::end_without_change(std::string why) {
  report_.forensics->why_no_change = why;
  return {.outcome = Outcome::out_of_memory,
          .exit_code = report_.tries.back().end.exit_code,
          .sentence = std::move(why)};
}

std::string Supervision::values_text() const {
  std::string text = knobs_.setting(Quantity::batch, batch_);
  if (knobs_.has(Quantity::accumulation))
    text += ", " + knobs_.setting(Quantity::accumulation, accumulation_);
  return text;
}

}  // namespace

Report run_supervision(const Orders& orders, const Listener& listener, const edit::Knobs& knobs,
                       Places& places, const RunTry& run) {
  return Supervision(orders, listener, knobs, places, run).run();
}

}  // namespace headroom::supervise
