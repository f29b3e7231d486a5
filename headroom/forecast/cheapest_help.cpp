#include "headroom/forecast/cheapest_help.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "headroom/base/text.h"

namespace headroom::forecast {
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

bool contains(const Technique& all, const Technique& part) {
  const std::vector<std::string> words = words_of(all.option);
  for (const std::string& word : words_of(part.option))
    if (std::find(words.begin(), words.end(), word) == words.end()) return false;
  return true;
}

// A shorter sequence is another task, so it is the last resort.
bool is_shorter(const Technique& technique) {
  return technique.option.find("--seq ") != std::string::npos;
}

auto rank_of(const Technique& technique) {
  return std::tuple(is_shorter(technique), technique.changes_training,
                    words_of(technique.option).size(), std::round(technique.time_factor * 100),
                    -technique.saves.count);
}

bool is_better(const Technique& one, const Technique& other) {
  return rank_of(one) < rank_of(other);
}

class Search {
 public:
  Search(const model::ModelConfig& config, const model::Settings& settings,
         const TechniqueOptions& options)
      : config_(config), options_(options) {
    const Forecast now = forecast_of(config, settings);
    least_ = Bytes{std::llround(kWorthSaying * static_cast<double>(now.at_peak.total().count))};
    for (Technique& technique : techniques(config, settings, options)) note(std::move(technique));
  }

  // Extends each technique that is not enough by each change that is still possible.
  void combine() {
    std::sort(not_enough_.begin(), not_enough_.end(),
              [](const Technique& a, const Technique& b) { return a.needs < b.needs; });
    if (not_enough_.size() > kWide) not_enough_.resize(kWide);
    for (const Technique& first : std::exchange(not_enough_, {}))
      for (Technique& then : techniques(config_, first.settings, options_)) {
        then.name = first.name + ", " + then.name;
        then.option = joined_options(first.option, then.option);
        then.saves += first.saves;
        then.saves_process += first.saves_process;
        then.time_factor *= first.time_factor;
        then.changes_training = then.changes_training || first.changes_training;
        note(std::move(then));
      }
  }

  [[nodiscard]] std::vector<Technique> best(std::size_t wanted) {
    std::sort(enough_.begin(), enough_.end(), is_better);
    std::vector<Technique> chosen;
    for (const Technique& one : enough_) add(chosen, one, wanted);
    std::sort(seen_.begin(), seen_.end(),
              [](const Technique& a, const Technique& b) { return a.needs < b.needs; });
    for (const Technique& one : seen_)
      if (!one.fits) add(chosen, one, wanted);
    return chosen;
  }

  // The fastest technique that is enough and has no needless change. Null: there is none.
  template <typename IsMeant>
  [[nodiscard]] const Technique* quickest(const IsMeant& is_meant) const {
    const Technique* best = nullptr;
    for (const Technique& one : enough_) {
      const bool has_more = std::any_of(enough_.begin(), enough_.end(), [&](const auto& other) {
        return other.option != one.option && contains(one, other);
      });
      if (has_more || !is_meant(one)) continue;
      if (best == nullptr || one.time_factor < best->time_factor) best = &one;
    }
    return best;
  }

  [[nodiscard]] std::size_t found() const {
    return static_cast<std::size_t>(std::count_if(
        enough_.begin(), enough_.end(), [](const Technique& one) { return !is_shorter(one); }));
  }

 private:
  void note(Technique technique) {
    if (!technique.can_run || technique.saves < least_) return;
    const auto same = [&](const Technique& other) { return other.settings == technique.settings; };
    if (std::any_of(seen_.begin(), seen_.end(), same)) return;
    seen_.push_back(technique);
    (technique.fits ? enough_ : not_enough_).push_back(std::move(technique));
  }

  static void add(std::vector<Technique>& chosen, const Technique& one, std::size_t wanted) {
    const auto part = [&](const Technique& other) { return contains(one, other); };
    if (chosen.size() < wanted && std::none_of(chosen.begin(), chosen.end(), part))
      chosen.push_back(one);
  }

  const model::ModelConfig& config_;
  const TechniqueOptions& options_;
  Bytes least_;
  std::vector<Technique> seen_, enough_, not_enough_;
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

std::vector<Technique> cheapest_help(const model::ModelConfig& config,
                                     const model::Settings& settings,
                                     const TechniqueOptions& options, std::size_t wanted) {
  Search search(config, settings, options);
  for (int together = 2; together <= kMostTogether && search.found() < wanted; ++together)
    search.combine();
  return search.best(wanted);
}

std::vector<Technique> enough_but_cannot_run(const model::ModelConfig& config,
                                             const model::Settings& settings,
                                             const TechniqueOptions& options) {
  TechniqueOptions anything = options;
  anything.can_run = {};
  Search search(config, settings, anything);
  for (int together = 2; together <= kMostTogether; ++together) search.combine();
  const auto runs = [&](const Technique& one) {
    return !options.can_run || options.can_run(one.settings);
  };
  std::vector<Technique> chosen;
  for (const bool changes : {false, true})
    if (const Technique* quickest = search.quickest([&](const Technique& one) {
          return !runs(one) && !is_shorter(one) && one.changes_training == changes;
        }))
      chosen.push_back(*quickest);
  for (Technique& one : chosen) one.can_run = false;
  std::sort(chosen.begin(), chosen.end(),
            [](const Technique& a, const Technique& b) { return a.time_factor < b.time_factor; });
  return chosen;
}

}  // namespace headroom::forecast
