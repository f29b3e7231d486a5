#include "headroom/cli/core/rehearsal_fit.h"

#include <algorithm>
#include <cmath>

namespace headroom::cli {
namespace {

constexpr long long kMost = 1LL << 24;

class Search {
 public:
  Search(Bytes room, const std::function<RehearsedBatch(long long)>& rehearse)
      : room_(room), rehearse_(rehearse) {}

  void try_batch(long long batch) {
    found_.rehearsed.push_back(rehearse_(batch));
    const RehearsedBatch& last = found_.rehearsed.back();
    if (last.fits)
      fits_ = std::max(fits_, batch);
    else
      fails_ = std::min(fails_, batch);
  }
  [[nodiscard]] bool goes_on() const {
    return static_cast<int>(found_.rehearsed.size()) < kMostRehearsals && fails_ > fits_ + 1;
  }
  // Strictly between the largest that fits and the smallest that does not.
  [[nodiscard]] long long next() const {
    long long guess = fails_ == kMost ? fits_ * 2 : (fits_ + fails_) / 2;
    if (const auto line = predicted()) guess = *line;
    // Next to a batch that fits as predicted, its neighbour proves it.
    if (guess <= fits_) guess = fits_ + 1;
    if (guess >= fails_) guess = fails_ - 1;
    return std::clamp(guess, fits_ + 1, fails_ - 1);
  }
  [[nodiscard]] LargestBatch result() && {
    if (fits_ > 0) found_.batch = fits_;
    found_.is_proven = fails_ == fits_ + 1;
    return std::move(found_);
  }

 private:
  // Where the line through the two batches nearest to the room meets it.
  [[nodiscard]] std::optional<long long> predicted() const {
    std::vector<RehearsedBatch> near = found_.rehearsed;
    if (near.size() < 2) return {};
    std::sort(near.begin(), near.end(),
              [&](const auto& one, const auto& other) { return distance(one) < distance(other); });
    const auto [a, b] = std::minmax(near[0], near[1], [](const auto& one, const auto& other) {
      return one.batch < other.batch;
    });
    const double slope =
        static_cast<double>((b.needs - a.needs).count) / static_cast<double>(b.batch - a.batch);
    if (slope <= 0) return {};
    const double more = static_cast<double>((room_ - a.needs).count) / slope;
    return std::clamp(a.batch + static_cast<long long>(std::floor(more)), 1LL, kMost);
  }
  [[nodiscard]] long long distance(const RehearsedBatch& one) const {
    return std::abs((room_ - one.needs).count);
  }

  Bytes room_;
  const std::function<RehearsedBatch(long long)>& rehearse_;
  LargestBatch found_;
  long long fits_ = 0, fails_ = kMost;
};

}  // namespace

LargestBatch find_largest_batch(long long first, Bytes room,
                                const std::function<RehearsedBatch(long long)>& rehearse) {
  Search search(room, rehearse);
  search.try_batch(first);
  while (search.goes_on()) search.try_batch(search.next());
  return std::move(search).result();
}

}  // namespace headroom::cli
