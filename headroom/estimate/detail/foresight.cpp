#include "headroom/estimate/detail/foresight.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace headroom::estimate::detail {
namespace {

using allocator::CachingAllocator;
using allocator::Operation;

// FNV-1a over what is asked, without how much.
std::uint64_t program_of(const Requests& requests) {
  std::uint64_t hash = 14695981039346656037U;
  const auto mix = [&](std::uint64_t value) { hash = (hash ^ value) * 1099511628211U; };
  for (const Operation& operation : requests) {
    mix(static_cast<std::uint64_t>(operation.kind));
    mix(operation.id);
    mix(operation.stream);
  }
  return hash;
}

// Lagrange's: how much of the value at `at[i]` is in that at `x`.
std::vector<double> weights_at(double x, const std::vector<double>& at) {
  std::vector<double> weights;
  for (std::size_t i = 0; i < at.size(); ++i) {
    double weight = 1;
    for (std::size_t j = 0; j < at.size(); ++j)
      if (j != i) weight *= (x - at[j]) / (at[i] - at[j]);
    weights.push_back(weight);
  }
  return weights;
}

CachingAllocator with_capacity(const CachingAllocator& card, Bytes capacity) {
  return CachingAllocator({.capacity = capacity, .settings = card.settings()});
}

// The allocator takes segments in steps of 2 MiB.
constexpr std::int64_t kStep = std::int64_t{2} << 20;

}  // namespace

void Foresight::learn(std::int64_t size, Requests requests) {
  const std::uint64_t program = program_of(requests);
  runs_[size] = {program, std::move(requests)};
}

// Up to points_ runs, those next to `size` first; of one program: of the one that the nearest pair
// shares. Empty: there are no two.
Foresight::Nearest Foresight::nearest(std::int64_t size, bool of_one_program) const {
  Nearest all;
  for (auto run = runs_.begin(); run != runs_.end(); ++run) all.push_back(run);
  std::stable_sort(all.begin(), all.end(), [&](const auto& one, const auto& other) {
    return std::abs(one->first - size) < std::abs(other->first - size);
  });
  for (const auto& first : all) {
    Nearest found;
    for (const auto& run : all)
      if (found.size() < points_ &&
          (!of_one_program || run->second.program == first->second.program))
        found.push_back(run);
    if (found.size() >= 2) return found;
  }
  return {};
}

std::optional<Requests> Foresight::requests_of(std::int64_t size) const {
  if (const auto known = runs_.find(size); known != runs_.end()) return known->second.requests;
  const Nearest runs = nearest(size, true);
  if (runs.empty()) return {};
  std::vector<double> sizes;
  for (const auto& run : runs) sizes.push_back(static_cast<double>(run->first));
  const std::vector<double> weights = weights_at(static_cast<double>(size), sizes);

  Requests requests = runs.front()->second.requests;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (requests[i].kind != Operation::Kind::allocate) continue;
    double bytes = 0;
    for (std::size_t k = 0; k < runs.size(); ++k)
      bytes += weights[k] * static_cast<double>(runs[k]->second.requests[i].bytes);
    requests[i].bytes = std::max<std::int64_t>(1, std::llround(bytes));
  }
  return requests;
}

// The smallest card on which this run fits.
Bytes Foresight::needed(Runs::const_iterator run, const CachingAllocator& card) const {
  if (const auto known = needed_.find(run->first); known != needed_.end()) return known->second;
  const Requests& requests = run->second.requests;
  Bytes enough = estimate::peak_reserved(requests, with_capacity(card, allocator::kUnlimited));
  Bytes too_little{0};
  while ((enough - too_little).count > kStep) {
    const Bytes middle = (enough + too_little) / 2;
    (is_served(requests, with_capacity(card, middle)) ? enough : too_little) = middle;
  }
  return needed_[run->first] = enough;
}

std::optional<Bytes> Foresight::along_a_line(std::int64_t size, Bytes of_first, Bytes of_second,
                                             const Nearest& runs) const {
  const std::vector<double> weights =
      weights_at(static_cast<double>(size),
                 {static_cast<double>(runs[0]->first), static_cast<double>(runs[1]->first)});
  return Bytes{std::llround(weights[0] * static_cast<double>(of_first.count) +
                            weights[1] * static_cast<double>(of_second.count))};
}

std::optional<bool> Foresight::fits(std::int64_t size, const CachingAllocator& card) const {
  if (const auto requests = requests_of(size)) return is_served(*requests, card);
  const Nearest runs = nearest(size, false);
  if (runs.empty()) return {};
  return along_a_line(size, needed(runs[0], card), needed(runs[1], card), runs) <=
         card.free_on_card();
}

std::optional<Bytes> Foresight::peak_reserved(std::int64_t size,
                                              const CachingAllocator& card) const {
  if (const auto requests = requests_of(size)) return estimate::peak_reserved(*requests, card);
  const Nearest runs = nearest(size, false);
  if (runs.empty()) return {};
  const auto peak = [&](std::size_t i) {
    return estimate::peak_reserved(runs[i]->second.requests, card);
  };
  return along_a_line(size, peak(0), peak(1), runs);
}

}  // namespace headroom::estimate::detail
