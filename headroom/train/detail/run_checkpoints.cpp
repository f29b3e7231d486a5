#include "headroom/train/detail/run_checkpoints.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/base/json.h"
#include "headroom/base/text.h"
#include "headroom/train/detail/frozen_part.h"

namespace headroom::train::detail {
namespace {

namespace fs = std::filesystem;

// The evaluation that a checkpoint in best/ was saved after.
std::optional<Evaluated> evaluation_in(const std::optional<std::string>& place) {
  if (!place) return {};
  const Json document = Json::parse(*place, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object() || !document.contains("evaluation") || document["evaluation"].is_null())
    return {};
  return evaluated_from(document["evaluation"]);
}

fs::path free_name(const fs::path& path) {
  fs::path name = path.string() + ".refused";
  for (int i = 2; fs::exists(name); ++i) name = path.string() + ".refused-" + std::to_string(i);
  return name;
}

}  // namespace

RunCheckpoints::RunCheckpoints(fs::path out, int keep, Hears hears)
    : out_(std::move(out)),
      keep_(keep),
      hears_(std::move(hears)),
      frozen_(std::make_shared<FrozenPart>(out_)),
      last_(out_, keep, frozen_),
      best_(out_ / "best", 1, frozen_) {}

std::optional<FoundCheckpoint> RunCheckpoints::load(Step& step) {
  const auto found = last_.load(step, {out_ / "best"});
  if (!found) return {};
  saved_ = found->step;
  refused_ = found->refused_folders;
  return found;
}

void RunCheckpoints::put_refused_away() {
  for (const fs::path& folder : std::exchange(refused_, {})) {
    std::error_code error;
    fs::rename(folder, free_name(folder), error);
    if (error)
      throw WriteError("out",
                       fmt::format("cannot rename {}: {}", folder.string(), error.message()));
  }
}

bool RunCheckpoints::attempt(std::int64_t step, std::string& failure,
                             const std::function<void()>& what) {
  try {
    what();
    return true;
  } catch (const WriteError& error) {
    failure = fmt::format("no checkpoint of step {}: {}", step, error.sentence());
  }
  if (!std::exchange(is_told_, true))
    hears_.say(failure + "; the training goes on, and the next save tries again");
  return false;
}

void RunCheckpoints::save(Step& step, const std::string& place, const First& first) {
  wait_for_last();
  if (saved_ == step.steps()) return;
  const auto all = [&] {
    if (first) first();
    last_.save(step, place);
  };
  if (attempt(step.steps(), failure_, all)) writing_ = step.steps();
}

void RunCheckpoints::wait_for_last() {
  const std::int64_t step = std::exchange(writing_, -1);
  if (step < 0 || !attempt(step, failure_, [&] { last_.wait(); })) return;
  saved_ = step;
  failure_.clear();
  is_told_ = false;
  hears_.saved(step);
}

void RunCheckpoints::save_if_best(Step& step, const std::string& place, const Evaluated& result,
                                  const First& first) {
  wait_for_best();
  if (!std::exchange(is_kept_known_, true)) kept_ = evaluation_in(best_.newest_more());
  if (kept_ && !is_better(result, *kept_)) return;
  const auto all = [&] {
    if (first) first();
    best_.save(step, place);
  };
  if (!attempt(step.steps(), best_failure_, all)) return;
  writing_best_ = step.steps();
  being_kept_ = result;
}

void RunCheckpoints::wait_for_best() {
  const std::int64_t step = std::exchange(writing_best_, -1);
  if (step >= 0 && attempt(step, best_failure_, [&] { best_.wait(); })) kept_ = being_kept_;
}

void RunCheckpoints::look() {
  if (last_.is_idle()) wait_for_last();
  if (best_.is_idle()) wait_for_best();
}

void RunCheckpoints::wait() {
  wait_for_last();
  wait_for_best();
}

std::optional<std::string> RunCheckpoints::forecast(Step& step, bool saves_often,
                                                    bool evaluates) const {
  std::error_code error;
  const fs::space_info space = fs::space(out_, error);
  if (error) return {};
  const Bytes one = last_.bytes(step), free{static_cast<std::int64_t>(space.available)};
  // Each kind has one more while the next is written.
  const int last = saves_often ? keep_ + 1 : 1, best = evaluates ? 2 : 0;
  const int there = static_cast<int>(last_.all().size() + best_.all().size());
  const Bytes needed =
      Bytes{one.count * std::max(0, last + best - there)} + last_.frozen_bytes(step);
  if (needed <= free) return {};
  return fmt::format(
      "checkpoints of {} each need {} more on the disk ({}{}), and {} has {} free: some may not be "
      "saved",
      to_string(one), to_string(needed),
      saves_often ? fmt::format("keep_last={} and the one being written", keep_) : "one at the end",
      evaluates ? ", and the best one twice while it is replaced" : "", out_.string(),
      to_string(free));
}

std::optional<std::int64_t> RunCheckpoints::load_best_weights(Step& step) {
  wait_for_best();
  return best_.load_weights(step);
}

}  // namespace headroom::train::detail
