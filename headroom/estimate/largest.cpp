#include "headroom/estimate/largest.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "headroom/base/error.h"
#include "headroom/dryrun/request_predictor.h"
#include "headroom/plan/largest.h"

namespace headroom::estimate {
namespace {

using Size = std::int64_t;
using Guess = std::optional<Size>;

// Limits the growth from a single run to the next size: sizes too large for any kernel would end
// the search with an error.
constexpr Size kLargestLeap = 1024;

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
    const plan::LargestSize found = plan::find_largest(
        {.at_least = bounds_.at_least,
         .at_most = bounds_.at_most,
         .first = bounds_.first,
         .most_trials = kMostProbes},
        {.fits = [this](Size size) { return probe(size); },
         .foresee = [this](Size size) { return predictor_.fits(size, *empty_card_); },
         .guess = [this] { return guess(); }});
    Largest largest{.size = found.size,
                    .capped = found.capped,
                    .is_proven = found.is_proven,
                    .recommended = {},
                    .probes = {}};
    if (found.size) largest.recommended = recommended(*found.size, margin);
    largest.probes = probes_;
    return largest;
  }

 private:
  [[nodiscard]] bool probes_left() const { return std::ssize(probes_) < kMostProbes; }

  bool probe(Size size) {
    dryrun::StepRun run = dryrun::run_steps(card_, step_of_(size), steps_, options_);
    empty_card_ = run.card_at_start;
    const bool fits = run.fits;
    if (!fits)
      run = dryrun::run_steps(dryrun::without_limit(card_), step_of_(size), steps_, options_);
    probes_.push_back({.size = size, .fits = fits, .peak_reserved = run.peak_reserved});
    if (probes_.size() == 1) lasting_ = run.lasting + run.gradients;
    if (run.fits) predictor_.learn(size, std::move(run.requests));
    return fits;
  }
  [[nodiscard]] bool was_probed(Size size) const {
    return std::any_of(probes_.begin(), probes_.end(),
                       [&](const Probe& probe) { return probe.size == size; });
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

  Guess recommended(Size largest, const Margin& margin) {
    if (!margin.bytes) {
      const Bytes free = share_of(empty_card_->free_on_card(), margin.share);
      const bool leaves = reserved_by(largest) <= empty_card_->free_on_card() - free;
      return largest == bounds_.at_most && leaves ? largest : less_share(largest, margin.share);
    }
    const Bytes most_reserved = empty_card_->free_on_card() - *margin.bytes;
    for (;;) {
      const Guess size = largest_reserving(most_reserved, largest);
      if (!size || was_probed(*size) || !probes_left()) return size;
      (void)probe(*size);
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
