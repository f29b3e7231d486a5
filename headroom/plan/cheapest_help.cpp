#include "headroom/plan/cheapest_help.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "headroom/base/text.h"

namespace headroom::plan {
namespace {

constexpr int kMostTogether = 4;
constexpr std::size_t kWide = 8;  // combinations per round that the next round extends
constexpr double kWorthSaying = 0.01;

// Splits options, each with its value: "--lora-rank 8" stays one.
std::vector<std::string> words_of(const std::string& options) {
  std::vector<std::string> words;
  for (const std::string_view part : split(options, ' ')) {
    if (words.empty() || part.starts_with("--") || part == "no")
      words.emplace_back(part);
    else
      words.back() += " " + std::string(part);
  }
  return words;
}

std::string name_of(const std::string& word) {
  return word.substr(0, word.find(' '));
}

bool contains(const Saving& all, const Saving& part) {
  const std::vector<std::string> words = words_of(all.option);
  for (const std::string& word : words_of(part.option))
    if (std::find(words.begin(), words.end(), word) == words.end()) return false;
  return true;
}

auto rank_of(const Saving& saving) {
  return std::tuple(saving.is_last_resort, saving.changes_training, words_of(saving.option).size(),
                    std::round(saving.time_factor * 100), -saving.saves.count);
}

bool is_better(const Saving& one, const Saving& other) {
  return rank_of(one) < rank_of(other);
}

class Search {
 public:
  Search(const model::ModelConfig& config, const model::Settings& settings,
         const SavingOptions& options)
      : config_(config), options_(options) {
    const forecast::Forecast now = forecast::forecast_of(config, settings);
    least_ = Bytes{std::llround(kWorthSaying * static_cast<double>(now.at_peak.total().count))};
    for (Saving& saving : savings(config, settings, options)) note(std::move(saving));
  }

  // Extends each saving that is not enough by each change that is still possible.
  void combine() {
    std::sort(not_enough_.begin(), not_enough_.end(),
              [](const Saving& a, const Saving& b) { return a.needs < b.needs; });
    // Those that change the training save most, and would leave no room for the others.
    std::size_t others = 0, changing = 0;
    std::erase_if(not_enough_, [&](const Saving& one) {
      return (one.changes_training ? changing : others)++ >= kWide;
    });
    for (const Saving& first : std::exchange(not_enough_, {}))
      for (Saving& then : savings(config_, first.settings, options_)) {
        then.title = first.title + ", " + then.title;
        then.option = joined_options(first.option, then.option);
        then.saves += first.saves;
        then.saves_process += first.saves_process;
        then.time_factor *= first.time_factor;
        then.changes_training = then.changes_training || first.changes_training;
        then.is_last_resort = then.is_last_resort || first.is_last_resort;
        note(std::move(then));
      }
  }

  [[nodiscard]] std::vector<Saving> best(std::size_t wanted) {
    std::sort(enough_.begin(), enough_.end(), is_better);
    std::vector<Saving> chosen;
    for (const Saving& one : enough_) add(chosen, one, wanted);
    std::sort(seen_.begin(), seen_.end(),
              [](const Saving& a, const Saving& b) { return a.needs < b.needs; });
    for (const Saving& one : seen_)
      if (!one.fits) add(chosen, one, wanted);
    return chosen;
  }

  // The fastest saving that is enough and has no needless change. Null if there is none.
  template <typename IsMeant>
  [[nodiscard]] const Saving* quickest(const IsMeant& is_meant) const {
    const Saving* best = nullptr;
    for (const Saving& one : enough_) {
      const bool has_more = std::any_of(enough_.begin(), enough_.end(), [&](const auto& other) {
        return other.option != one.option && contains(one, other);
      });
      if (has_more || !is_meant(one)) continue;
      if (best == nullptr || one.time_factor < best->time_factor) best = &one;
    }
    return best;
  }

  // `exact`: only those that do not change the training.
  [[nodiscard]] std::size_t found(bool exact = false) const {
    return static_cast<std::size_t>(
        std::count_if(enough_.begin(), enough_.end(), [&](const Saving& one) {
          return !one.is_last_resort && !(exact && one.changes_training);
        }));
  }

 private:
  void note(Saving saving) {
    if (!saving.can_run || saving.saves < least_) return;
    const auto same = [&](const Saving& other) { return other.settings == saving.settings; };
    if (std::any_of(seen_.begin(), seen_.end(), same)) return;
    seen_.push_back(saving);
    (saving.fits ? enough_ : not_enough_).push_back(std::move(saving));
  }

  static void add(std::vector<Saving>& chosen, const Saving& one, std::size_t wanted) {
    const auto part = [&](const Saving& other) { return contains(one, other); };
    if (chosen.size() < wanted && std::none_of(chosen.begin(), chosen.end(), part))
      chosen.push_back(one);
  }

  const model::ModelConfig& config_;
  const SavingOptions& options_;
  Bytes least_;
  std::vector<Saving> seen_, enough_, not_enough_;
};

}  // namespace

std::string joined_options(const std::string& first, const std::string& then) {
  std::vector<std::string> words = words_of(first);
  for (const std::string& word : words_of(then)) {
    std::erase_if(words, [&](const std::string& other) { return name_of(other) == name_of(word); });
    words.push_back(word);
  }
  return join(words, " ");
}

std::vector<Saving> cheapest_help(const model::ModelConfig& config, const model::Settings& settings,
                                  const SavingOptions& options, std::size_t wanted) {
  Search search(config, settings, options);
  // Two exact changes together are better than one that changes the training.
  if (search.found(/*exact=*/true) < wanted) search.combine();
  for (int together = 3; together <= kMostTogether && search.found() < wanted; ++together)
    search.combine();
  return search.best(wanted);
}

std::vector<Saving> enough_but_cannot_run(const model::ModelConfig& config,
                                          const model::Settings& settings,
                                          const SavingOptions& options) {
  SavingOptions anything = options;
  anything.can_run = {};
  Search search(config, settings, anything);
  for (int together = 2; together <= kMostTogether; ++together) search.combine();
  const auto runs = [&](const Saving& one) {
    return !options.can_run || options.can_run(one.settings);
  };
  std::vector<Saving> chosen;
  for (const bool changes : {false, true})
    if (const Saving* quickest = search.quickest([&](const Saving& one) {
          return !runs(one) && !one.is_last_resort && one.changes_training == changes;
        }))
      chosen.push_back(*quickest);
  for (Saving& one : chosen) one.can_run = false;
  std::sort(chosen.begin(), chosen.end(),
            [](const Saving& a, const Saving& b) { return a.time_factor < b.time_factor; });
  return chosen;
}

}  // namespace headroom::plan
