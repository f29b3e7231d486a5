#include "headroom/supervise/next_batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "headroom/base/error.h"
#include "headroom/edit/knobs.h"
#include "headroom/plan/largest.h"

namespace headroom::supervise {
namespace {

// The share of the limit to use if the need was measured at two batches, and at one: with one, the
// part that does not depend on the batch is unknown.
constexpr double kOfLine = 0.95, kOfRatio = 0.9;

// At most this share of the last batch after this many misses, because the figures were wrong
// (after the first miss there are none yet). With them 4096 becomes 1 in 8 tries.
constexpr std::array kShareAfterMisses{1.0, 0.5, 0.5, 0.25, 0.125, 0.0625, 0.03125};

struct Aim {
  double batch = 0;
  std::string reason;
};

double number(long long n) {
  return static_cast<double>(n);
}

// ---- From figures ----

// A lower bound of the batch's need, if the try shows one.
std::optional<Bytes> need_of(const Try& one) {
  if (!one.peak || !one.out_of_memory()) return one.peak;
  const auto& asked = one.judgement.asked;
  if (!asked || !one.limit || one.limit->count <= 0) return {};
  const double need = number(one.peak->count) + number(asked->count);
  // The sum is within the limit: sampling missed the peak, or the memory was fragmented.
  if (need <= number(one.limit->count)) return {};
  return Bytes{static_cast<std::int64_t>(std::min(need, 9e18))};
}

plan::Needs needs(const std::vector<Try>& tries) {
  plan::Needs most;
  for (const Try& one : tries)
    if (const auto need = need_of(one)) most[*one.batch] = std::max(most[*one.batch], *need);
  return most;
}

// Through the two smallest batches, which are nearest to the next one. std::nullopt if it begins
// below zero, which memory does not do.
std::optional<plan::Line> line_of(const plan::Needs& needs) {
  std::optional<plan::Line> line = plan::line_of_smallest(needs);
  if (!line || line->fixed < -0.05 * number(needs.begin()->second.count)) return {};
  line->fixed = std::max(line->fixed, 0.0);
  return line;
}

std::string gib(double bytes) {
  return to_string(Bytes(static_cast<std::int64_t>(bytes)));
}

// The number of samples that fit by the line. std::nullopt if not even one does: then the figures
// are wrong.
std::optional<double> room_on(const std::optional<plan::Line>& line, Bytes limit) {
  if (!line || line->size_at(limit) < 1) return {};
  return line->size_at(limit);
}

// ---- Divisors ----

std::map<long long, int> prime_factors(long long n) {
  std::map<long long, int> factors;
  for (long long p = 2; p * p <= n; ++p) {
    for (; n % p == 0; n /= p) ++factors[p];
  }
  if (n > 1) ++factors[n];
  return factors;
}

// All divisors of the effective batch, ascending. It factors batch and accumulation separately,
// because factoring their product would take too long.
std::vector<long long> divisors(long long batch, long long accumulation) {
  auto factors = prime_factors(batch);
  for (const auto& [prime, times] : prime_factors(accumulation)) factors[prime] += times;
  std::vector<long long> all{1};
  for (const auto& [prime, times] : factors) {
    const std::size_t before = all.size();
    long long power = 1;
    for (int i = 0; i < times; ++i) {
      power *= prime;
      for (std::size_t k = 0; k < before; ++k) all.push_back(all[k] * power);
    }
  }
  std::sort(all.begin(), all.end());
  return all;
}

void check(long long value, const char* what) {
  if (value >= 1 && value <= edit::kMostBatch) return;
  throw UsageError(expectation("next_batch", std::string(what) + " from 1 to 1000000000",
                               std::to_string(value)));
}

// ---- One step ----

// The smallest batch that ran out with no less memory than the last one.
long long known_too_large(const std::vector<Try>& tries) {
  const Try& last = tries.back();
  long long bound = *last.batch;
  for (const Try& one : tries) {
    const bool had_more = !one.limit || !last.limit || *one.limit >= *last.limit;
    if (one.out_of_memory() && had_more) bound = std::min(bound, *one.batch);
  }
  return bound;
}

Aim by_figures(const std::vector<Try>& tries) {
  const Try& last = tries.back();
  const auto known = needs(tries);
  const double half = number(*last.batch) / 2;
  const auto need = need_of(last);
  if (!need)
    return {half, "no memory figures found, so at most half of " + std::to_string(*last.batch)};
  const Bytes limit = *last.limit;
  Aim aim{kOfRatio * number(*last.batch) * ratio(limit, *need),
          fmt::format("batch {} needs at least {}, and {} may be used", *last.batch,
                      to_string(*need), to_string(limit))};
  const auto line = line_of(known);
  if (const auto room = room_on(line, limit); room && kOfLine * *room < aim.batch)
    aim = {kOfLine * *room,
           fmt::format("from {} tries: {} plus {} per sample, and {} may be used", known.size(),
                       gib(line->fixed), gib(line->per_size), to_string(limit))};
  return aim;
}

// The limit after misses does not apply to the second point of a line, which completes the figures.
Aim aim_for(const std::vector<Try>& tries) {
  const auto misses = static_cast<std::size_t>(std::count_if(
      tries.begin(), tries.end(), [](const Try& one) { return one.out_of_memory(); }));
  const Try& last = tries.back();
  Aim aim = by_figures(tries);
  const bool line_is_new =
      misses == 2 && need_of(last) && room_on(line_of(needs(tries)), *last.limit).has_value();
  if (line_is_new) return aim;
  const double share = kShareAfterMisses[std::min(misses, kShareAfterMisses.size()) - 1];
  if (const double most = share * number(*last.batch); most < aim.batch)
    aim = {most,
           fmt::format("{} tries ran out of memory, so {}", misses,
                       most < 1 ? "the smallest batch"
                                : "at most batch " + std::to_string(static_cast<long long>(most)))};
  return aim;
}

// "16 x 4", or "16" without an accumulation.
std::string text_of(long long batch, std::optional<long long> accumulation) {
  return std::to_string(batch) + (accumulation ? " x " + std::to_string(*accumulation) : "");
}

NextBatch none_below(long long bound, long long effective, long long min_batch) {
  std::string why = fmt::format("no batch from {} to below {} divides the effective batch {}",
                                min_batch, bound, effective);
  if (bound <= min_batch)
    why = fmt::format("batch {} is the smallest that may be tried", min_batch);
  return {.batch = {}, .accumulation = {}, .why = why};
}

}  // namespace

NextBatch next_batch(const std::vector<Try>& tries, long long first_batch,
                     std::optional<long long> first_accumulation, long long min_batch) {
  check(first_batch, "a batch");
  check(first_accumulation.value_or(1), "an accumulation");
  check(min_batch, "a smallest batch");
  if (tries.empty() || !tries.back().out_of_memory())
    throw InternalError("next_batch", "expected a last try that ran out of memory");
  const auto all = divisors(first_batch, first_accumulation.value_or(1));
  const long long effective = first_batch * first_accumulation.value_or(1);
  const long long bound = known_too_large(tries);
  auto lowest = std::lower_bound(all.begin(), all.end(), min_batch);
  const auto end = std::lower_bound(all.begin(), all.end(), bound);
  if (lowest >= end) return none_below(bound, effective, min_batch);
  const Aim aim = aim_for(tries);
  const auto above = std::upper_bound(lowest, end, static_cast<long long>(aim.batch));
  const long long batch = above == lowest ? *lowest : *std::prev(above);
  const auto accumulation_of = [&](long long size) {
    return first_accumulation ? std::optional(effective / size) : std::nullopt;
  };
  const long long last = *tries.back().batch;
  return {.batch = batch,
          .accumulation = accumulation_of(batch),
          .why = fmt::format("{}: now {} instead of {}", aim.reason,
                             text_of(batch, accumulation_of(batch)),
                             text_of(last, accumulation_of(last)))};
}

NextBatch batch_up_to(long long most, long long first_batch, long long first_accumulation,
                      long long min_batch) {
  check(first_batch, "a batch");
  check(first_accumulation, "an accumulation");
  const auto all = divisors(first_batch, first_accumulation);
  const long long effective = first_batch * first_accumulation;
  const auto above = std::upper_bound(all.begin(), all.end(), most);
  if (above == all.begin() || *std::prev(above) < min_batch)
    return none_below(most + 1, effective, min_batch);
  const long long batch = *std::prev(above);
  return {.batch = batch,
          .accumulation = effective / batch,
          .why = fmt::format("up to {}: {}", most, text_of(batch, effective / batch))};
}

}  // namespace headroom::supervise
