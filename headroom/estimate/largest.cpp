#include "headroom/estimate/largest.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>

#include "headroom/base/error.h"
#include "headroom/dryrun/request_predictor.h"

namespace headroom::estimate {
namespace {

using Size = std::int64_t;
using Guess = std::optional<Size>;

// Limits on the growth from the sizes run so far to the next one. Later runs correct a small step,
// and sizes too large for any kernel would end the search with an error.
constexpr Size kLargestLeap = 1024;  // from a single run
constexpr Size kLargestStep = 32;    // from a prediction
// Number of sizes beyond a boundary that are searched for a second one.
constexpr Size kLookAhead = 16;

Bytes share_of(Bytes whole, double share) {
  return Bytes{std::llround(share * static_cast<double>(whole.count))};
}

class Search {
 public:
  Search(const Bounds& bounds, const std::function<dryrun::MakeSubject(Size)>& step_of,
         const gpu::SimulatedCard& card, int steps, const dryrun::CardOptions& options)
      : bounds_(bounds),
        step_of_(step_of),
        card_(card),
        steps_(steps),
        options_(options),
        predictor_(bounds.growth) {}

  Largest run(const Margin& margin) {
    for (Guess next = first(); next && probes_left(); next = choose()) probe(*next);
    Largest found;
    for (const auto& [size, fits] : result_)
      if (fits && is_end(size)) found.size = size;
    found.is_proven = found.size || does_not_fit(bounds_.at_least);
    if (!found.size) found.size = largest_that_fits();
    found.capped = found.size && found.size == bounds_.at_most;
    if (found.size) found.recommended = recommended(*found.size, margin);
    found.probes = probes_;
    return found;
  }

 private:
  [[nodiscard]] bool probes_left() const { return std::ssize(probes_) < kMostProbes; }
  [[nodiscard]] Size most() const {
    return bounds_.at_most.value_or(std::numeric_limits<Size>::max() / 4);
  }
  [[nodiscard]] Size within(Size size, Size low, Size high) const {
    return std::max(low, std::min(size, high));
  }

  [[nodiscard]] Size first() const { return within(bounds_.first, bounds_.at_least, most()); }

  void probe(Size size) {
    dryrun::StepRun run = dryrun::run_steps(card_, step_of_(size), steps_, options_);
    empty_card_ = run.card_at_start;
    const bool fits = run.fits;
    if (!fits)
      run = dryrun::run_steps(dryrun::without_limit(card_), step_of_(size), steps_, options_);
    probes_.push_back({.size = size, .fits = fits, .peak_reserved = run.peak_reserved});
    result_[size] = fits;
    if (probes_.size() == 1) lasting_ = run.lasting + run.gradients;
    if (run.fits) predictor_.learn(size, std::move(run.requests));
  }

  [[nodiscard]] bool does_not_fit(Size size) const {
    const auto known = result_.find(size);
    return known != result_.end() && !known->second;
  }
  // For a size that fits: true if the next size was run and does not fit, or is out of bounds.
  [[nodiscard]] bool is_end(Size size) const {
    return size == bounds_.at_most || does_not_fit(size + 1);
  }
  [[nodiscard]] Guess largest_that_fits() const {
    Guess largest;
    for (const auto& [size, fits] : result_)
      if (fits) largest = size;
    return largest;
  }
  // The smallest failed size above `above`; nothing if there is none.
  [[nodiscard]] Guess smallest_that_does_not(Size above) const {
    for (const auto& [size, fits] : result_)
      if (size > above && !fits) return size;
    return {};
  }

  // The next size to run; nothing: the search is over.
  [[nodiscard]] Guess choose() const {
    const Guess fits = largest_that_fits();
    if (!fits) return smaller();
    if (*fits == most()) return {};
    if (does_not_fit(*fits + 1)) return beyond(*fits);
    if (const Guess foreseen = foresee(*fits)) return within(*foreseen, *fits + 1, most());
    if (const Guess limit = smallest_that_does_not(*fits)) return *fits + (*limit - *fits) / 2;
    return within(guess(), *fits + 1, most());
  }

  // A larger size that may fit again, if enough probes are left for it and the next size.
  [[nodiscard]] Guess beyond(Size end) const {
    if (std::ssize(probes_) > kMostProbes - 2) return {};
    for (Size ahead = std::min(end + kLookAhead, most()); ahead > end + 1; --ahead)
      if (foreseen(ahead).value_or(false)) return ahead;
    return {};
  }

  // While no size has fitted.
  [[nodiscard]] Guess smaller() const {
    const Size least = bounds_.at_least;
    if (does_not_fit(least)) return {};
    if (std::ssize(probes_) == kMostProbes - 1) return least;
    const Size wish = foresee(least - 1).value_or(guess());
    return within(wish, least, *smallest_that_does_not(least) - 1);
  }

  // From the first run alone: memory that outlives a step is constant, the rest grows in
  // proportion.
  [[nodiscard]] Size guess() const {
    const Probe& one = probes_.front();
    const auto grows = static_cast<double>((one.peak_reserved - lasting_).count),
               room = static_cast<double>((empty_card_->free_on_card() - lasting_).count);
    const double times = grows > 0 ? room / grows : 2;
    return static_cast<Size>(static_cast<double>(one.size) *
                             std::clamp(times, 0.0, static_cast<double>(kLargestLeap)));
  }

  [[nodiscard]] std::optional<bool> foreseen(Size size) const {
    if (const auto known = result_.find(size); known != result_.end()) return known->second;
    return predictor_.fits(size, *empty_card_);
  }

  // The largest size predicted to fit, from `fits` on. Nothing if too little is known.
  [[nodiscard]] Guess foresee(Size fits) const {
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

  Guess recommended(Size largest, const Margin& margin) {
    if (!margin.bytes) {
      const Bytes free = share_of(empty_card_->free_on_card(), margin.share);
      const bool leaves = reserved_by(largest) <= empty_card_->free_on_card() - free;
      return largest == bounds_.at_most && leaves ? largest : less_share(largest, margin.share);
    }
    const Bytes most_reserved = empty_card_->free_on_card() - *margin.bytes;
    for (;;) {
      const Guess size = largest_reserving(most_reserved, largest);
      if (!size || result_.count(*size) || !probes_left()) return size;
      probe(*size);
    }
  }

  [[nodiscard]] Bytes reserved_by(Size size) const {
    for (const Probe& probe : probes_)
      if (probe.size == size) return probe.peak_reserved;
    return predictor_.peak_reserved(size, *empty_card_).value_or(probes_.front().peak_reserved);
  }

  [[nodiscard]] Guess largest_reserving(Bytes most_reserved, Size largest) const {
    if (reserved_by(largest) <= most_reserved) return largest;
    Size low = bounds_.at_least - 1, high = largest;
    while (high - low > 1) {
      const Size middle = low + (high - low) / 2;
      (reserved_by(middle) <= most_reserved ? low : high) = middle;
    }
    return low < bounds_.at_least ? Guess() : low;
  }

  const Bounds bounds_;
  const std::function<dryrun::MakeSubject(Size)>& step_of_;
  const gpu::SimulatedCard card_;
  const int steps_;
  const dryrun::CardOptions options_;
  dryrun::RequestPredictor predictor_;
  std::optional<allocator::CachingAllocator> empty_card_;
  Bytes lasting_;
  std::vector<Probe> probes_;
  std::map<Size, bool> result_;
};

}  // namespace

// The 1e-6 compensates rounding: 100 * (1 - 0.07) is 92.99999999999999.
std::int64_t less_share(std::int64_t size, double share) {
  return std::max(Size{1},
                  static_cast<Size>(std::floor(static_cast<double>(size) * (1 - share) + 1e-6)));
}

void check(const Bounds& bounds, const Margin& margin, const char* function) {
  if (bounds.at_least < 1 || (bounds.at_most && *bounds.at_most < bounds.at_least))
    throw UsageError(
        expectation(function, "a smallest size of at least 1, and a largest that is not below it",
                    std::to_string(bounds.at_least) + " and " +
                        (bounds.at_most ? std::to_string(*bounds.at_most) : std::string("none"))));
  if (!(margin.share >= 0 && margin.share < 1))
    throw UsageError(expectation(function, "a margin from 0 to below 1, or a size such as 2GiB",
                                 std::to_string(margin.share), "0.1"));
  if (margin.bytes && *margin.bytes < Bytes{0})
    throw UsageError(
        expectation(function, "a margin of 0 bytes or more", to_string(*margin.bytes), "2GiB"));
}

Largest find_largest(const Bounds& bounds, const std::function<dryrun::MakeSubject(Size)>& step_of,
                     const gpu::SimulatedCard& card, const Margin& margin, int steps,
                     const dryrun::CardOptions& options) {
  check(bounds, margin);
  return Search(bounds, step_of, card, steps, options).run(margin);
}

}  // namespace headroom::estimate
