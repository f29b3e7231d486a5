#include "headroom/plan/largest.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace headroom::plan {
namespace {

using Size = std::int64_t;
using Guess = std::optional<Size>;

// Limits the growth from the sizes tried so far to the next one. Later trials correct a small step,
// and sizes too large for any kernel would end the search with an error.
constexpr Size kLargestStep = 32;
// Number of sizes beyond a boundary that are searched for a second one.
constexpr Size kLookAhead = 16;

class SizeSearch {
 public:
  SizeSearch(const SizeBounds& bounds, const SizeTrials& trials)
      : bounds_(bounds), trials_(trials) {}

  LargestSize run() {
    for (Guess next = first(); next && tried() < bounds_.most_trials; next = choose())
      result_[*next] = trials_.fits(*next);
    LargestSize found;
    for (const auto& [size, fits] : result_)
      if (fits && is_end(size)) found.size = size;
    found.is_proven = found.size || does_not_fit(bounds_.at_least);
    if (!found.size) found.size = largest_that_fits();
    found.capped = found.size && found.size == bounds_.at_most;
    return found;
  }

 private:
  [[nodiscard]] int tried() const { return static_cast<int>(result_.size()); }
  [[nodiscard]] Size most() const {
    return bounds_.at_most.value_or(std::numeric_limits<Size>::max() / 4);
  }
  [[nodiscard]] static Size within(Size size, Size low, Size high) {
    return std::max(low, std::min(size, high));
  }
  [[nodiscard]] Size first() const { return within(bounds_.first, bounds_.at_least, most()); }

  [[nodiscard]] bool does_not_fit(Size size) const {
    const auto known = result_.find(size);
    return known != result_.end() && !known->second;
  }
  // For a size that fits: true if the next size was tried and does not fit, or is out of bounds.
  [[nodiscard]] bool is_end(Size size) const {
    return size == bounds_.at_most || does_not_fit(size + 1);
  }
  [[nodiscard]] Guess largest_that_fits() const {
    Guess largest;
    for (const auto& [size, fits] : result_)
      if (fits) largest = size;
    return largest;
  }
  // The smallest failed size above `above`.
  [[nodiscard]] Guess smallest_that_does_not(Size above) const {
    for (const auto& [size, fits] : result_)
      if (size > above && !fits) return size;
    return {};
  }

  // The next size to try; std::nullopt: the search is over.
  [[nodiscard]] Guess choose() const {
    const Guess fits = largest_that_fits();
    if (!fits) return smaller();
    if (*fits == most()) return {};
    if (does_not_fit(*fits + 1)) return beyond(*fits);
    if (const Guess best = best_foreseen(*fits)) return within(*best, *fits + 1, most());
    if (const Guess limit = smallest_that_does_not(*fits)) return *fits + (*limit - *fits) / 2;
    return within(trials_.guess(), *fits + 1, most());
  }

  // A larger size that may fit again, if enough trials are left for it and the next size.
  [[nodiscard]] Guess beyond(Size end) const {
    if (tried() > bounds_.most_trials - 2) return {};
    for (Size ahead = std::min(end + kLookAhead, most()); ahead > end + 1; --ahead)
      if (foreseen(ahead).value_or(false)) return ahead;
    return {};
  }

  // While no size has fitted.
  [[nodiscard]] Guess smaller() const {
    const Size least = bounds_.at_least;
    if (does_not_fit(least)) return {};
    if (tried() == bounds_.most_trials - 1) return least;
    const Size wish = best_foreseen(least - 1).value_or(trials_.guess());
    return within(wish, least, *smallest_that_does_not(least) - 1);
  }

  [[nodiscard]] std::optional<bool> foreseen(Size size) const {
    if (const auto known = result_.find(size); known != result_.end()) return known->second;
    return trials_.foresee(size);
  }

  // The largest size foreseen to fit, from `fits` on. std::nullopt if too little is known.
  [[nodiscard]] Guess best_foreseen(Size fits) const {
    if (!foreseen(fits + 1)) return {};
    Size low = fits, high = fits + 1;
    const Size farthest =
        within(smallest_that_does_not(fits).value_or(fits * kLargestStep), fits + 1, most());
    for (Size leap = 1; *foreseen(high); high = std::min(low + leap, farthest)) {
      low = high;
      if (low == farthest) return low;
      leap *= 2;
    }
    while (high - low > 1) {
      const Size middle = low + (high - low) / 2;
      (*foreseen(middle) ? low : high) = middle;
    }
    return low;
  }

  const SizeBounds& bounds_;
  const SizeTrials& trials_;
  std::map<Size, bool> result_;
};

using Measured = std::pair<Size, Bytes>;

std::optional<Line> line_through(const Measured& low, const Measured& high) {
  const double slope = static_cast<double>((high.second - low.second).count) /
                       static_cast<double>(high.first - low.first);
  if (slope <= 0) return {};
  return Line{static_cast<double>(low.second.count) - slope * static_cast<double>(low.first),
              slope};
}

}  // namespace

LargestSize find_largest(const SizeBounds& bounds, const SizeTrials& trials) {
  return SizeSearch(bounds, trials).run();
}

Bytes Line::at(Size size) const {
  return Bytes{std::llround(fixed + per_size * static_cast<double>(size))};
}

double Line::size_at(Bytes need) const {
  return (static_cast<double>(need.count) - fixed) / per_size;
}

std::optional<Line> line_of_smallest(const Needs& needs) {
  if (needs.size() < 2) return {};
  return line_through(*needs.begin(), *std::next(needs.begin()));
}

std::optional<Line> line_near(const Needs& needs, Bytes room) {
  if (needs.size() < 2) return {};
  std::vector<Measured> near(needs.begin(), needs.end());
  std::sort(near.begin(), near.end(), [&](const Measured& one, const Measured& other) {
    return std::abs((room - one.second).count) < std::abs((room - other.second).count);
  });
  const auto [low, high] = std::minmax(
      near[0], near[1], [](const auto& one, const auto& other) { return one.first < other.first; });
  return line_through(low, high);
}

}  // namespace headroom::plan
