#include "headroom/dryrun/request_predictor.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>
#include <utility>

namespace headroom::dryrun {
namespace {

using allocator::CachingAllocator;
using allocator::Operation;

bool is_allocation(const Operation& operation) {
  return operation.kind == Operation::Kind::allocate;
}

// FNV-1a over the requests without their sizes.
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

// Lagrange weights: the share of the value at `at[i]` in the interpolated value at `x`.
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

std::int64_t times(std::int64_t bytes, double factor) {
  return std::max<std::int64_t>(1, std::llround(static_cast<double>(bytes) * factor));
}

// The number of requests of each size in bytes.
std::unordered_map<std::int64_t, int> counts_of(const Requests& requests) {
  std::unordered_map<std::int64_t, int> counts;
  for (const Operation& operation : requests)
    if (is_allocation(operation)) ++counts[operation.bytes];
  return counts;
}

// Largest relative error at which a scaled run explains the run it is compared with.
constexpr double kExplained = 0.03;

}  // namespace

void RequestPredictor::learn(std::int64_t size, Requests requests) {
  const std::uint64_t program = program_of(requests);
  runs_[size] = {program, std::move(requests)};
}

std::vector<RequestPredictor::Run> RequestPredictor::nearest(std::int64_t size) const {
  std::vector<Run> all;
  for (auto run = runs_.begin(); run != runs_.end(); ++run) all.push_back(run);
  std::stable_sort(all.begin(), all.end(), [&](const Run& one, const Run& other) {
    return std::abs(one->first - size) < std::abs(other->first - size);
  });
  return all;
}

std::optional<Requests> RequestPredictor::requests_of(std::int64_t size,
                                                      const CachingAllocator& card) const {
  std::vector<Run> runs = nearest(size);
  const Run closest = runs.front();
  if (closest->first == size) return closest->second.requests;
  for (const Run& other : runs)
    if (other != closest && other->second.program != closest->second.program &&
        !explains(closest, other, card))
      return {};
  const Run other = runs[1];
  std::erase_if(runs,
                [&](const Run& run) { return run->second.program != closest->second.program; });
  return runs.size() > 1 ? drawn(size, runs) : scaled(size, closest, other);
}

// Interpolates runs of one program, sorted by distance, nearest first.
Requests RequestPredictor::drawn(std::int64_t size, std::vector<Run> runs) const {
  runs.resize(std::min(runs.size(), static_cast<std::size_t>(growth_.power) + 1));
  std::vector<double> sizes;
  for (const Run& run : runs) sizes.push_back(static_cast<double>(run->first));
  const std::vector<double> weights = weights_at(static_cast<double>(size), sizes);

  Requests requests = runs.front()->second.requests;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (!is_allocation(requests[i])) continue;
    if (is_of_last_chunk(i, runs)) {
      requests[i].bytes = times(requests[i].bytes, factors(runs.front()->first, size).back());
      continue;
    }
    double bytes = 0;
    for (std::size_t k = 0; k < runs.size(); ++k)
      bytes += weights[k] * static_cast<double>(runs[k]->second.requests[i].bytes);
    requests[i].bytes = std::max<std::int64_t>(1, std::llround(bytes));
  }
  return requests;
}

bool RequestPredictor::is_of_last_chunk(std::size_t request, const std::vector<Run>& runs) const {
  if (growth_.chunk == 0) return false;
  const Run& first = runs.front();
  const std::int64_t bytes = first->second.requests[request].bytes;
  return std::all_of(runs.begin() + 1, runs.end(), [&](const Run& run) {
    const std::vector<double> by = factors(first->first, run->first);
    const bool is_by_size = std::find(by.begin(), by.end() - 1, by.back()) != by.end() - 1;
    return !is_by_size && run->second.requests[request].bytes == times(bytes, by.back());
  });
}

// The factors by which a request's bytes may grow from one size to another.
std::vector<double> RequestPredictor::factors(std::int64_t from, std::int64_t to) const {
  std::vector<double> factors;
  for (int power = 0; power <= growth_.power; ++power)
    factors.push_back(std::pow(static_cast<double>(to) / static_cast<double>(from), power));
  if (growth_.chunk > 0) factors.push_back(growth_.last_chunk(to) / growth_.last_chunk(from));
  return factors;
}

Requests RequestPredictor::scaled(std::int64_t size, Run run, Run other) const {
  const auto here = counts_of(run->second.requests), there = counts_of(other->second.requests);
  const std::vector<double> to_other = factors(run->first, other->first),
                            to_size = factors(run->first, size);
  // Maps old bytes to new: the best factor is the one for which the other run has about as many
  // requests of the scaled size.
  std::unordered_map<std::int64_t, std::int64_t> become;
  for (const auto& [bytes, count] : here) {
    std::size_t best = 1;  // if no factor matches
    int least_difference = std::numeric_limits<int>::max();
    for (std::size_t tried = 0; tried < to_other.size(); ++tried) {
      const auto found = there.find(times(bytes, to_other[tried]));
      if (found == there.end() || std::abs(found->second - count) >= least_difference) continue;
      least_difference = std::abs(found->second - count);
      best = tried;
    }
    become[bytes] = times(bytes, to_size[best]);
  }
  Requests requests = run->second.requests;
  for (Operation& request : requests)
    if (is_allocation(request)) request.bytes = become.at(request.bytes);
  return requests;
}

bool RequestPredictor::explains(Run run, Run other, const CachingAllocator& card) const {
  const auto [known, is_new] = explains_.try_emplace({run->first, other->first}, false);
  if (!is_new) return known->second;
  const CachingAllocator unlimited = with_capacity(card, allocator::kUnlimited);
  const Bytes is = dryrun::peak_reserved(other->second.requests, unlimited),
              said = dryrun::peak_reserved(scaled(other->first, run, other), unlimited);
  return known->second = std::abs(ratio(said, is) - 1) < kExplained;
}

Bytes RequestPredictor::needed(Run run, const CachingAllocator& card) const {
  const auto [known, is_new] = needed_.try_emplace(run->first);
  if (is_new) known->second = smallest_card(run->second.requests, card);
  return known->second;
}

// Interpolates the needed card between the runs on both sides of the size, or the nearest two.
Bytes RequestPredictor::along_a_line(std::int64_t size, const CachingAllocator& card) const {
  auto above = runs_.upper_bound(size);
  if (above == runs_.end()) --above;
  if (above == runs_.begin()) ++above;
  const Run below = std::prev(above);
  const auto at = [](const Run& run) { return static_cast<double>(run->first); };
  const std::vector<double> weights = weights_at(static_cast<double>(size), {at(below), at(above)});
  return Bytes{std::llround(weights[0] * static_cast<double>(needed(below, card).count) +
                            weights[1] * static_cast<double>(needed(above, card).count))};
}

bool RequestPredictor::knows(std::int64_t size) const {
  return runs_.size() >= 2 || runs_.contains(size);
}

std::optional<bool> RequestPredictor::fits(std::int64_t size, const CachingAllocator& card) const {
  if (!knows(size)) return {};
  if (const auto requests = requests_of(size, card)) return is_served(*requests, card);
  return along_a_line(size, card) <= card.free_on_card();
}

std::optional<Bytes> RequestPredictor::peak_reserved(std::int64_t size,
                                                     const CachingAllocator& card) const {
  if (!knows(size)) return {};
  if (const auto requests = requests_of(size, card))
    return dryrun::peak_reserved(*requests, with_capacity(card, allocator::kUnlimited));
  return along_a_line(size, card);
}

std::optional<Bytes> RequestPredictor::needed(std::int64_t size,
                                              const CachingAllocator& card) const {
  if (!knows(size)) return {};
  if (const auto requests = requests_of(size, card)) return smallest_card(*requests, card);
  return along_a_line(size, card);
}

std::optional<CardBounds> RequestPredictor::bounds(std::int64_t size,
                                                   const CachingAllocator& card) const {
  if (!knows(size)) return {};
  if (const auto requests = requests_of(size, card)) return card_bounds(*requests, card);
  const Bytes line = along_a_line(size, card);
  return CardBounds{line, line};
}

}  // namespace headroom::dryrun
