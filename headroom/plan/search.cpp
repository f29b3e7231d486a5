#include "headroom/plan/search.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/base/text.h"
#include "headroom/plan/placing.h"
#include "headroom/plan/plan.h"

namespace headroom::plan {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kJustFits = 1 + 1e-12;
constexpr std::size_t kRunnersUp = 2;
// Replicas and stages that cannot come within this factor of the best are not looked at.
constexpr double kFarBehind = 1.5;

// So many replicas and stages, with the fastest placement by what is known.
struct Pair {
  int replicas = 1, stages = 1;
  double seconds = 0;  // a bound until it is placed
  std::optional<Placed> placed = {};
};

class Searcher {
 public:
  Searcher(const SearchQuestion& question, Pricer& pricer)
      : question_(question), layers_(pricer.layers()), pricer_(pricer), placing_(question, pricer) {
    if (question.cards.empty() || question.rows < 1 || question.techniques < 1 ||
        question.checkpointing.empty())
      throw UsageError(expectation("search", "cards, rows and techniques", "none"));
    if (question.part.value_or(1) < 1 || question.replicas.value_or(1) < 1 ||
        question.stages.value_or(1) < 1)
      throw UsageError(expectation("search", "positive numbers", "zero or less"));
  }

  [[nodiscard]] Searched run();
  // Whether a replica fits on the cards, a stage each.
  [[nodiscard]] bool holds_a_replica();

 private:
  // The fastest by their bounds first.
  [[nodiscard]] std::vector<std::pair<double, Combination>> combinations(int replicas, int stages);
  [[nodiscard]] std::optional<Placed> fastest(int replicas, int stages);
  // Of all combinations; std::nullopt if none lacks less than `limit`.
  [[nodiscard]] std::optional<Placing::Lack> least_lack(int replicas, int stages, double limit);
  [[nodiscard]] Considered refused(int replicas, int stages);
  [[nodiscard]] std::vector<Pair> pairs();

  const SearchQuestion& question_;
  const std::int64_t layers_;
  Pricer& pricer_;
  Placing placing_;
  std::int64_t looked_at_ = 0;
};

std::vector<std::pair<double, Combination>> Searcher::combinations(int replicas, int stages) {
  std::vector<std::pair<double, Combination>> all;
  const std::int64_t rows = (question_.rows + replicas - 1) / replicas;
  for (const std::int64_t part :
       question_.part ? std::vector{*question_.part} : micro_batches(rows, {})) {
    const Plan plan{.micro_batch = part};
    for (int techniques = 0; techniques < question_.techniques; ++techniques) {
      const Combination one{.form = {techniques, largest_part(plan, rows), replicas},
                            .stages = stages,
                            .parts = static_cast<int>(count_of_parts(plan, rows)),
                            .rows = rows};
      all.emplace_back(placing_.bound(one), one);
    }
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  return all;
}

std::optional<Placed> Searcher::fastest(int replicas, int stages) {
  std::optional<Placed> best;
  for (const auto& [bound, one] : combinations(replicas, stages)) {
    const double limit = best ? best->placement.seconds : kNever;
    if (bound >= limit) break;
    ++looked_at_;
    if (auto placed = placing_.fastest(one, limit)) best = std::move(placed);
  }
  return best;
}

std::optional<Placing::Lack> Searcher::least_lack(int replicas, int stages, double limit) {
  std::optional<Placing::Lack> least;
  auto all = combinations(replicas, stages);
  // Small parts mostly need the least, and the others are then soon known to need more.
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
    return a.second.form.rows < b.second.form.rows;
  });
  for (const auto& [bound, one] : all)
    if (auto lack = placing_.least_lack(one, least ? least->share : limit)) least = std::move(lack);
  return least;
}

Considered Searcher::refused(int replicas, int stages) {
  const auto lack = least_lack(replicas, stages, kNever);
  return {.replicas = replicas,
          .stages = stages,
          .refusal = lack ? std::optional(lack->refusal) : std::nullopt};
}

std::vector<Pair> Searcher::pairs() {
  std::vector<Pair> all;
  const auto cards = static_cast<int>(question_.cards.size());
  for (int stages = 1; stages <= std::min<std::int64_t>(cards, layers_); ++stages)
    for (int replicas = 1; replicas * stages <= cards && replicas <= question_.rows; ++replicas)
      if (question_.replicas.value_or(replicas) == replicas &&
          question_.stages.value_or(stages) == stages)
        all.push_back({replicas, stages, combinations(replicas, stages).front().first});
  return all;
}

bool Searcher::holds_a_replica() {
  const auto stages = static_cast<int>(question_.cards.size());
  while (const auto fits = least_lack(1, stages, kJustFits))
    if (placing_.fits_exactly(fits->placed)) return true;
  return false;
}

// The pair that may be the fastest is next: it is placed, then taken if its exact memory fits, and
// else placed again, by what is known now.
Searched Searcher::run() {
  std::vector<Placement> fitting;
  std::vector<Considered> refusals;
  std::vector<Pair> open = pairs();
  double fastest_fitting = kNever;
  while (!open.empty() && fitting.size() <= kRunnersUp) {
    const auto next = std::min_element(open.begin(), open.end(), [](const Pair& a, const Pair& b) {
      return a.seconds < b.seconds;
    });
    if (next->seconds > kFarBehind * fastest_fitting) break;
    if (next->placed && placing_.fits_exactly(*next->placed)) {
      Placement& placement = fitting.emplace_back(std::move(next->placed->placement));
      for (PlacedStage& stage : placement.stages) stage.memory = pricer_.exact(stage.stage);
      fastest_fitting = std::min(fastest_fitting, placement.seconds);
    } else if ((next->placed = fastest(next->replicas, next->stages))) {
      next->seconds = next->placed->placement.seconds;
      continue;
    } else {
      refusals.push_back(refused(next->replicas, next->stages));
    }
    open.erase(next);
  }
  std::stable_sort(fitting.begin(), fitting.end(),
                   [](const Placement& a, const Placement& b) { return a.seconds < b.seconds; });
  Searched result{.looked_at = looked_at_};
  for (Placement& one : fitting)
    result.considered.push_back({.replicas = one.form.replicas,
                                 .stages = static_cast<int>(one.stages.size()),
                                 .best = std::move(one)});
  result.considered.insert(result.considered.end(), refusals.begin(), refusals.end());
  return result;
}

}  // namespace

Searched search(const SearchQuestion& question, Pricer& pricer) {
  const auto cards = static_cast<int>(question.cards.size());
  if (const std::int64_t wanted =
          std::int64_t{question.replicas.value_or(1)} * question.stages.value_or(1);
      cards > 0 && wanted > cards)
    throw UsageError(expectation("plan", counted(wanted, "card") + " for these replicas and stages",
                                 std::to_string(cards)));
  return Searcher(question, pricer).run();
}

std::optional<int> cards_needed(const SearchQuestion& question, const PlanCard& card,
                                Pricer& pricer) {
  const auto holds = [&](int count) {
    SearchQuestion asked = question;
    asked.cards.assign(static_cast<std::size_t>(count), card);
    return Searcher(asked, pricer).holds_a_replica();
  };
  Bytes all;
  for (std::int64_t layer = 0; layer < pricer.layers(); ++layer)
    all += pricer.at_least({.form = {}, .first = layer, .count = 1}).resident;
  const std::int64_t least = all.count / std::max<std::int64_t>(1, card.resident.count);
  // More stages are not always better: more parts wait on the first one.
  for (auto count = static_cast<int>(std::clamp<std::int64_t>(least, 1, pricer.layers()));
       count <= pricer.layers(); ++count)
    if (holds(count)) return count;
  return {};
}

}  // namespace headroom::plan
