#include "headroom/oom/detail/progress.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <string>
#include <tuple>

#include "headroom/base/text.h"
#include "headroom/oom/detail/amount_in_log.h"
#include "headroom/oom/detail/pattern.h"

namespace headroom::oom::detail {
namespace {

constexpr auto kSteps = std::to_array<std::string_view>(
    {"step", "steps", "iter", "iters", "iteration", "batch", "batches", "round", "train*"});
constexpr auto kItems =
    std::to_array<std::string_view>({"trial", "run", "fold", "job", "task", "file", "item",
                                     "sample", "config", "prompt", "chunk", "request"});

bool shows_measures(std::string_view text) {
  constexpr auto kMeasures = std::to_array<std::string_view>(
      {"*loss*#", "acc*#", "lr*#", "eta*#", "*it/s", "*s/it", "*sec/step", "*s/step", "ppl*#",
       "samples/s", "tokens/s", "reward*#", "ok", "*frame/s"});
  return matches_any(kMeasures, text);
}

// True for bars of preparation: other ranks load and fetch while one fails.
bool shows_preparation(std::string_view text) {
  constexpr auto kWork =
      std::to_array<std::string_view>({"loading", "download*", "fetching", "map", "token*"});
  return matches_any(kWork, text);
}

bool says_done(std::string_view text) {
  constexpr auto kDone = std::to_array<std::string_view>(
      {"ok", "done", "finished", "completed", "succeeded", "value", "score", "saved"});
  return matches_any(kDone, text);
}

bool says_failed(std::string_view text) {
  constexpr auto kFailed =
      std::to_array<std::string_view>({"fail*", "error*", "*error", "crashed", "out of memory"});
  return matches_any(kFailed, text);
}

// The first number that ends a word within 40 characters after `at`: "step 1,200", "epoch: [3]",
// "epoch': 0.41", "trial a_4c1_0003".
std::optional<double> number_behind(std::string_view text, std::size_t at) {
  const std::size_t last = std::min(text.size(), at + 40);
  for (; at < last; ++at) {
    if (!is_digit(text[at]) || (at > 0 && is_digit(text[at - 1]))) continue;
    const std::size_t end = after_number(text, at);
    const bool ends_word = end >= text.size() || !is_word_character(text[end]);
    std::string digits(text.substr(at, end - at));
    std::erase(digits, ',');
    if (ends_word && digits.size() < 18) return to_number(digits);
  }
  return {};
}

std::optional<double> number_of(std::string_view text, std::string_view word) {
  for (auto found = find(word, text); found; found = find(word, text, kAnywhere, found->end))
    if (const auto number = number_behind(text, found->end)) return number;
  return {};
}

// "120/1000", "1203 / 5120", but not a date.
std::optional<double> number_of_total(std::string_view text) {
  for (const std::string_view pattern : {"#/#", "# / #"})
    for (auto found = find(pattern, text); found;
         found = find(pattern, text, kAnywhere, found->end))
      if (found->end >= text.size() || text[found->end] != '/')
        return number_behind(text, found->begin);
  return {};
}

std::optional<double> number_of_step(std::string_view text) {
  if (const auto number = number_of_total(text)) return number;
  for (const std::string_view word : kSteps)
    if (const auto number = number_of(text, word)) return number;
  return {};
}

// The kind of an item and its number: "trial 7 finished", "[18/400] ok", {"batch": 64, "status":
// "ok"}.
constexpr std::size_t kKinds = kItems.size() + kSteps.size() + 1;

std::optional<Progress> item_of(const Line& line) {
  const bool failed = says_failed(line.text);
  if (!failed && !says_done(line.text)) return {};
  Progress item{.of = Progress::Of::items, .failed = failed};
  const auto has_number = [&](std::string_view word) {
    ++item.outer;
    const auto number = number_of(line.text, word);
    item.inner = number.value_or(0);
    return number.has_value();
  };
  if (std::any_of(kItems.begin(), kItems.end(), has_number)) return item;
  if (std::any_of(kSteps.begin(), kSteps.end(), has_number)) return item;
  const std::string_view printed = trim(line.printed);
  if (!find("[#/#]", printed, 1)) return {};
  item.outer = 0;
  item.inner = number_behind(printed, 0).value_or(0);
  return item;
}

std::optional<Progress> progress_of(const Line& line, double& epoch) {
  // The final summary of Weights & Biases is not a step.
  if (line.is_quoted || trim(line.printed).starts_with("wandb:")) return {};
  const auto outer = number_of(line.text, "epoch");
  epoch = outer.value_or(epoch);
  const bool measured = shows_measures(line.text);
  if (auto item = item_of(line); item && !(item->failed && measured)) return item;
  const bool done = says_done(line.text) && !says_failed(line.text);
  if ((!measured && !done) || shows_preparation(line.text)) return {};
  const auto inner = number_of_step(line.text);
  if (!inner && !outer) return {};
  return Progress{.of = matches("*%|*", line.text) ? Progress::Of::bar : Progress::Of::steps,
                  .outer = epoch,
                  .inner = inner.value_or(0)};
}

auto place(const Progress& progress) {
  return std::tie(progress.outer, progress.inner);
}

// Counts the rises of related progress numbers after a line.
struct Rises {
  std::size_t count = 0;
  bool own = false;  // the line itself reports an item that failed
};

Rises rises_of(const std::vector<Progress>& progress, std::size_t after) {
  Rises rises;
  const Progress* last = nullptr;
  for (const Progress& one : progress) {
    const bool close = one.line + 3 >= after && one.line <= after + 3;
    if (one.failed) {
      rises.own = rises.own || close;
    } else if (one.line > after && !(last && place(*last) == place(one))) {
      // Steps count upwards; items may be done in any order.
      const bool falls =
          one.of != Progress::Of::items && last && last->line > after && place(one) < place(*last);
      rises.count += falls ? 0 : 1;
    }
    last = &one;
  }
  return rises;
}

// Where prefixes name the speaker, only the progress of the same speaker counts.
std::vector<Progress> of_speaker(const std::vector<Line>& lines,
                                 const std::vector<Progress>& progress, const std::string& who) {
  std::vector<Progress> own;
  std::copy_if(progress.begin(), progress.end(), std::back_inserter(own),
               [&](const Progress& one) { return lines[one.line].who == who; });
  return own;
}

}  // namespace

std::vector<Progress> progress_in(const std::vector<Line>& lines) {
  std::vector<Progress> progress;
  double epoch = 0;
  for (std::size_t i = 0; i < lines.size(); ++i)
    if (auto found = progress_of(lines[i], epoch)) {
      found->line = i;
      progress.push_back(*found);
    }
  return progress;
}

bool goes_on(const std::vector<Line>& lines, const std::vector<Progress>& progress,
             std::size_t after, bool ended_well) {
  const std::vector<Progress> own = of_speaker(lines, progress, lines[after].who);
  const auto rises = [&](auto&& belongs) {
    std::vector<Progress> some;
    std::copy_if(own.begin(), own.end(), std::back_inserter(some), belongs);
    return rises_of(some, after);
  };
  // A dying process redraws its bar once, and its other threads may draw another one.
  const auto steps = rises([](const Progress& one) { return one.of == Progress::Of::steps; });
  if (steps.count >= (ended_well ? 1 : 2)) return true;
  const auto bars = rises([](const Progress& one) { return one.of == Progress::Of::bar; });
  if (bars.count >= (ended_well ? 1 : 3)) return true;
  for (std::size_t kind = 0; kind < kKinds; ++kind) {
    const auto items = rises([&](const Progress& one) {
      return one.of == Progress::Of::items && one.outer == static_cast<double>(kind);
    });
    if (items.count >= (ended_well || items.own ? 1 : 2)) return true;
  }
  return false;
}

}  // namespace headroom::oom::detail
