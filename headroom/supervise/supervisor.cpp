#include "headroom/supervise/supervisor.h"

#include <algorithm>
#include <csignal>
#include <map>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/base/interrupt.h"
#include "headroom/base/text.h"
#include "headroom/edit/edited_files.h"
#include "headroom/edit/knobs.h"
#include "headroom/supervise/aftermath.h"
#include "headroom/supervise/attempt.h"
#include "headroom/supervise/checkpoints.h"
#include "headroom/supervise/earlier_runs.h"
#include "headroom/supervise/next_batch.h"
#include "headroom/supervise/place_search.h"

namespace headroom::supervise {
namespace {

using namespace headroom::literals;

class Supervision {
 public:
  Supervision(const Orders& orders, const Listener& listener, const sigset_t& signal_mask);
  Report run();

 private:
  void say(const std::string& sentence) const {
    if (listener_.say) listener_.say(sentence);
  }
  void say_all(const std::vector<std::string>& sentences) const {
    for (const std::string& sentence : sentences) say(sentence);
  }
  // A job that runs is worth more than what we would like to keep of it.
  template <typename Work>
  void or_warn(const Work& work) const;

  void open_history();

  // ---- Its place
  bool take_place();
  void cancel(int exit_code);
  [[nodiscard]] PlaceSearch::Wish wish();
  [[nodiscard]] std::optional<Bytes> remembered_need();

  // ---- One try
  void begin_with_what_worked();
  void check_mapped_values() const;
  [[nodiscard]] edit::Changed values_of_this_try() const;
  bool change_files();
  Attempt attempt();
  void note(Attempt& attempt);
  void remember(const Attempt& attempt) const;

  // ---- After it
  bool go_on(const Attempt& attempt);
  void change(edit::Quantity quantity, long long& value, long long to);
  [[nodiscard]] bool may_change_batch() const;
  [[nodiscard]] std::string why_batch_stays() const;
  bool smaller_batch();
  bool roomier_place(const Attempt& attempt);
  void give_up(std::string sentence);
  [[nodiscard]] std::string values_text() const;

  const sigset_t& signal_mask_;  // the command's
  const Orders& orders_;
  const Listener& listener_;
  const edit::Knobs knobs_;
  const std::optional<long long> first_batch_, first_accumulation_;
  const EarlierRuns earlier_;
  std::optional<History> history_;
  PlaceSearch search_;

  long long batch_ = 1, accumulation_ = 1;
  bool told_need_ = false;
  std::optional<EarlierRuns::Beginning> begun_;  // instead of what the command says
  std::string cause_;                            // why it is tried again
  std::optional<Bytes> room_needed_;             // more than the last place had
  std::optional<Place> place_;
  std::vector<Tried> tried_;
  edit::EditedFiles files_;
  Report report_;
};

Supervision::Supervision(const Orders& orders, const Listener& listener,
                         const sigset_t& signal_mask)
    : signal_mask_(signal_mask),
      orders_(orders),
      listener_(listener),
      knobs_(orders.maps, orders.command),
      first_batch_(knobs_.value(edit::Quantity::batch)),
      first_accumulation_(knobs_.value(edit::Quantity::accumulation)),
      earlier_(knobs_),
      search_(orders, listener),
      batch_(first_batch_.value_or(1)),
      accumulation_(first_accumulation_.value_or(1)) {}

template <typename Work>
void Supervision::or_warn(const Work& work) const {
  try {
    work();
  } catch (const Error& error) {
    say(error.sentence());
  }
}

// A file that was named has to be writable; what we keep for ourselves may fail.
void Supervision::open_history() {
  if (!orders_.history.empty()) {
    history_.emplace(orders_.history);
    return;
  }
  or_warn([&] {
    std::error_code ignored;  // then the file cannot be opened, and that says why
    std::filesystem::create_directories(state_dir(), ignored);
    history_.emplace(state_dir() / "runs.ndjson");
  });
}

Report Supervision::run() {
  if (!orders_.resume_arguments.empty())  // what cannot be added is to be said now, not in a night
    (void)knobs_.with_arguments(orders_.command, resume_arguments(orders_.resume_arguments, "x"));
  if (knobs_.has(edit::Quantity::accumulation) && !knobs_.has(edit::Quantity::batch))
    throw UsageError(expectation("--map", "a batch beside the accumulation",
                                 knobs_.name(edit::Quantity::accumulation) + " alone",
                                 "--map \"--batch-size=batch\""));
  say_all(knobs_.assumptions());
  if (knobs_.has(edit::Quantity::batch) && !may_change_batch())
    say(knobs_.name(edit::Quantity::batch) + " will not be changed: " + why_batch_stays());
  open_history();
  while (take_place()) {
    begin_with_what_worked();
    if (!change_files()) break;
    Attempt attempt = this->attempt();
    note(attempt);
    if (!go_on(attempt)) break;
  }
  say_all(files_.put_back());
  return std::move(report_);
}

// ---- Its place -------------------------------------------------------------------------------

std::optional<Bytes> Supervision::remembered_need() {
  if (!orders_.remember || search_.outer()) return {};
  const std::optional<Bytes> need = earlier_.need(search_.fresh());
  if (need && !std::exchange(told_need_, true))
    say("reserving " + to_string(*need) +
        " on each card, by what it used before (--need, --forget)");
  return need;
}

// A job of unknown need gets its cards exclusively, as far as they are free; a small leftover is
// not worth starting on.
PlaceSearch::Wish Supervision::wish() {
  const std::optional<Bytes> need = orders_.need ? orders_.need : remembered_need();
  PlaceSearch::Wish wish{.need = need ? *need : search_.half_a_card(),
                         .is_known = need.has_value(),
                         .timeout = orders_.wait_timeout};
  if (room_needed_) {
    wish.is_known = orders_.need.has_value();
    wish.need = std::max(wish.need, *room_needed_);
    wish.timeout = orders_.wait_for_more;
  }
  return wish;
}

void Supervision::cancel(int exit_code) {
  report_.outcome = Outcome::cancelled;
  report_.exit_code = exit_code;
}

// A place for the next try, or false with the report's end.
bool Supervision::take_place() {
  if (place_ && place_->lease && place_->lease->ended_by()) place_.reset();
  if (place_) {
    const auto cancelled = search_.wait_until_memory_is_back(*place_);
    if (cancelled) cancel(*cancelled);
    return !cancelled;
  }
  say_all(files_.put_back());  // while we wait, files are the user's
  PlaceSearch::Answer answer = search_.find(wish());
  report_.waited += answer.waited;
  place_ = std::move(answer.place);
  if (place_) {
    if (room_needed_) say(cause_ + "; trying again where there is more room: " + place_->name());
    report_.sentence.clear();
    return true;
  }
  if (answer.outcome == Outcome::cancelled) {
    cancel(answer.exit_code);
  } else if (room_needed_) {
    give_up(report_.sentence + "; nor is there more room: " + answer.sentence);
    report_.forensics->why_no_change = report_.sentence;
  } else {
    report_.outcome = answer.outcome;
    report_.sentence = answer.sentence;
  }
  return false;
}

// ---- One try ---------------------------------------------------------------------------------

// The first try alone: later ones know better.
void Supervision::begin_with_what_worked() {
  begun_.reset();
  if (!orders_.remember || !tried_.empty()) return;
  begun_ = earlier_.beginning(*place_, orders_.min_batch);
  if (!begun_) return;
  batch_ = begun_->batch;
  accumulation_ = begun_->accumulation;
  say("beginning with " + values_text() + ", which worked here on " +
      local_timestamp(begun_->when).substr(0, 16) + " (--forget begins anew)");
}

// Somebody may have edited a mapped file since it was read: another run, or its owner.
void Supervision::check_mapped_values() const {
  say_all(edit::restore_leftovers(edit::mapped_files(orders_.maps)));
  const edit::Knobs now(orders_.maps, orders_.command);
  for (const edit::Quantity quantity : {edit::Quantity::batch, edit::Quantity::accumulation})
    if (now.value(quantity) != knobs_.value(quantity))
      throw BusyError("run", knobs_.name(quantity) +
                                 " was changed while a place was waited for; start it again");
}

edit::Changed Supervision::values_of_this_try() const {
  const bool changed = !tried_.empty() || begun_;
  return changed ? knobs_.with(batch_, accumulation_) : edit::Changed{orders_.command, {}, {}};
}

// False, with the report's end, if a file is no longer ours to change: what was tried stays told.
bool Supervision::change_files() {
  if (tried_.empty()) check_mapped_values();
  try {
    files_.put(values_of_this_try().files);
  } catch (const Error& error) {
    if (tried_.empty()) throw;
    give_up(cause_ + ", and it cannot be tried again with less: " + error.sentence());
    return false;
  }
  return true;
}

Attempt Supervision::attempt() {
  edit::Changed now = values_of_this_try();
  std::optional<std::filesystem::path> checkpoint;
  if (!tried_.empty() && !orders_.checkpoints.empty())
    checkpoint = newest_checkpoint(orders_.checkpoints, report_.tries.front().started);
  if (checkpoint)
    now.command =
        knobs_.with_arguments(now.command, resume_arguments(orders_.resume_arguments, *checkpoint));

  job::Launch launch{.command = std::move(now.command),
                     .environment = environment_of(*place_, orders_.devices, orders_.by_uuid),
                     .inherited = {},
                     .output_to_error = orders_.output_to_error,
                     .signal_mask = signal_mask_};
  for (std::string& variable : now.environment) launch.environment.push_back(std::move(variable));
  if (place_->lease) launch.inherited.push_back(place_->lease->descriptor());
  if (listener_.starting) listener_.starting();

  Attempt attempt = run_attempt(std::move(launch), *place_, search_, orders_, listener_);
  attempt.checkpoint = std::move(checkpoint);
  return attempt;
}

void Supervision::note(Attempt& attempt) {
  const Tried one = tried(attempt, *place_, batch_);
  tried_.push_back(one);
  TryRecord record = record_of(attempt, *place_, one, static_cast<int>(tried_.size()));
  if (knobs_.has(edit::Quantity::batch)) record.batch = batch_;
  if (knobs_.has(edit::Quantity::accumulation)) record.accumulation = accumulation_;
  if (history_)
    if (const auto reason = history_->append(record)) say(*reason);
  report_.tries.push_back(std::move(record));
  say_all(remarks(attempt.end));
}

// A batch is worth remembering if it had to be reduced: a small one that somebody chose says
// nothing of what would fit.
void Supervision::remember(const Attempt& attempt) const {
  const auto peak = attempt.usage.card_peak();
  const bool had_to = tried_.size() > 1;  // what it began with, it knew
  if (had_to && batch_ < first_batch_.value_or(1))
    or_warn([&] { earlier_.remember_batch(*place_, batch_, accumulation_, peak); });
  if (peak) or_warn([&] { earlier_.remember_use(*place_, *peak); });
}

// ---- After it --------------------------------------------------------------------------------

std::string Supervision::values_text() const {
  std::string text = knobs_.setting(edit::Quantity::batch, batch_);
  if (knobs_.has(edit::Quantity::accumulation))
    text += ", " + knobs_.setting(edit::Quantity::accumulation, accumulation_);
  return text;
}

void Supervision::give_up(std::string sentence) {
  report_.outcome = Outcome::out_of_memory;
  report_.sentence = std::move(sentence);
}

// Whether there is to be another try; if not, the report is complete.
bool Supervision::go_on(const Attempt& attempt) {
  const job::JobEnd& end = attempt.end;
  report_.exit_code = end.exit_code;
  report_.outcome = Outcome::ended;
  if (!end.started) {
    report_.sentence = orders_.command.front() + ": " + end.not_started;
    return false;
  }
  if (attempt.ended_stalled) {
    report_.sentence = "ended because it was stalled";
    if (end.exit_code == 0) report_.exit_code = 128 + SIGTERM;
    return false;
  }
  if (end.exit_code == 0) {
    if (orders_.remember) remember(attempt);
    return false;
  }
  if (end.received || !is_out_of_memory(attempt.judgement)) return false;
  if (begun_) or_warn([&] { earlier_.forget(*place_, *begun_); });
  report_.forensics =
      aftermath(attempt.judgement, attempt.usage, attempt.pids, tried_, report_.tries);
  if (static_cast<int>(tried_.size()) > orders_.max_retries) {
    give_up("out of memory after " + counted(static_cast<long long>(tried_.size()), "attempt") +
            ", the most that --max-retries allows");
    report_.forensics->why_no_change = report_.sentence;
    return false;
  }
  cause_ = cause_of(attempt);
  const bool again = smaller_batch() || roomier_place(attempt);
  if (!again) report_.forensics->why_no_change = report_.sentence;
  return again;
}

void Supervision::change(edit::Quantity quantity, long long& value, long long to) {
  report_.forensics->changes.push_back({knobs_.name(quantity), value, to});
  value = to;
}

bool Supervision::may_change_batch() const {
  return knobs_.has(edit::Quantity::accumulation) || !orders_.keep_effective_batch;
}

std::string Supervision::why_batch_stays() const {
  return "with a smaller " + knobs_.name(edit::Quantity::batch) +
         " alone the effective batch would change; map the accumulation, too "
         "(--map \"--accum=accumulation\"), or allow it with --let-batch-change";
}

bool Supervision::smaller_batch() {
  if (!knobs_.has(edit::Quantity::batch)) {
    report_.sentence =
        "out of memory, and nothing is mapped that may be changed: "
        "try --map \"--batch-size=batch\" --map \"--accum=accumulation\"";
    return false;
  }
  if (!may_change_batch()) {
    report_.sentence = "out of memory, and " + why_batch_stays();
    return false;
  }
  const NextBatch next = next_batch(tried_, *first_batch_, first_accumulation_, orders_.min_batch);
  report_.sentence = "out of memory: " + next.why;
  if (!next.batch) return false;
  change(edit::Quantity::batch, batch_, *next.batch);
  if (next.accumulation) change(edit::Quantity::accumulation, accumulation_, *next.accumulation);
  say(cause_ + "; trying again with " + values_text() + ": " + next.why);
  report_.sentence.clear();
  room_needed_.reset();
  return true;
}

// Another card, or more of this one: whatever has more room than it had.
bool Supervision::roomier_place(const Attempt& attempt) {
  report_.outcome = Outcome::out_of_memory;
  const auto room = place_->room();
  if (!room || search_.outer() || attempt.judgement.verdict != oom::Verdict::gpu_oom) return false;
  const Tried& last = tried_.back();
  room_needed_ = last.peak && last.asked ? *last.peak + *last.asked : *room + 1_MiB;
  place_.reset();
  return true;
}

}  // namespace

Report supervise(const Orders& orders, const Listener& listener) {
  // Between tries nothing may end us: files of the user are changed.
  const SignalsHeld held;
  for (const std::string& sentence : edit::restore_leftovers(edit::mapped_files(orders.maps)))
    if (listener.say) listener.say(sentence);
  return Supervision(orders, listener, held.before()).run();
}

}  // namespace headroom::supervise
