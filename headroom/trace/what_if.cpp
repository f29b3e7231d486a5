#include "headroom/trace/what_if.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <thread>
#include <tuple>
#include <utility>

#include "headroom/allocator/settings.h"
#include "headroom/base/error.h"
#include "headroom/base/text.h"

namespace headroom::trace {
namespace {

using allocator::kUnlimited;

// About 5 ms of playing. Starting a thread per card and batch (20 us) is negligible beside it.
constexpr std::size_t kOperationsInABatch = 65536;
// A saving below this share of the reserved memory is not worth a change.
constexpr double kWorthwhile = 0.01;
constexpr int kChecksAbove = 8;

// Plays every `stride`th card from `first` on; keeps the first exception for the caller.
void play_share(std::vector<CardPlayer>& cards, const Batch& batch, std::size_t first,
                std::size_t stride, std::exception_ptr& failed) try {
  for (std::size_t i = first; i < cards.size(); i += stride) cards[i].play(batch);
} catch (...) {
  failed = std::current_exception();
}

void play_all(std::vector<CardPlayer>& cards, const Batch& batch) {
  const std::size_t threads =
      std::min<std::size_t>(cards.size(), std::max(1U, std::thread::hardware_concurrency()));
  std::vector<std::exception_ptr> failed(threads);
  {
    std::vector<std::jthread> others;
    for (std::size_t i = 1; i < threads; ++i)
      others.emplace_back([&, i] { play_share(cards, batch, i, threads, failed[i]); });
    play_share(cards, batch, 0, threads, failed[0]);
  }
  for (const std::exception_ptr& error : failed)
    if (error) std::rethrow_exception(error);
}

auto rank(const CardReplay& card) {
  const allocator::Statistics& s = card.statistics;
  return std::tuple(card.refused.size(), s.reserved_bytes.all.peak, s.num_alloc_retries,
                    s.num_device_alloc + s.num_device_free);
}

// All sizes that the allocator takes from the driver are multiples of it.
Bytes step_of(const allocator::Settings& settings, const allocator::Version& version) {
  const Bytes usual = version.small_segment;
  return settings.large_segment_size.count % usual.count == 0 ? usual : Bytes{1 << 20};
}

Bytes rounded_up(double bytes, Bytes step) {
  const double steps = std::ceil(bytes / static_cast<double>(step.count));
  return step * std::max<std::int64_t>(1, static_cast<std::int64_t>(steps));
}

}  // namespace

WhatIf what_if(Reader& trace, const std::vector<CardSetup>& setups, const ReplayOptions& options) {
  Operations operations(trace, options.operations);
  std::vector<CardPlayer> cards;
  for (const CardSetup& setup : setups)
    cards.emplace_back(setup, trace.about(), operations, options.operations.name);
  for (Batch batch; !options.cancel.stop_requested() && operations.next(batch, kOperationsInABatch);
       batch.clear()) {
    play_all(cards, batch);
    if (options.progress) options.progress(trace);
  }
  check_device(options.operations, operations.noticed());
  WhatIf result{{}, operations.noticed()};
  for (CardPlayer& card : cards) result.cards.push_back(card.result());
  return result;
}

std::vector<CardSetup> usual_setups(const CardSetup& setup, const About& about) {
  const allocator::Settings parsed = settings_at_start(setup, about);
  const std::string base = setup.settings.value_or(about.settings);
  std::vector<std::pair<std::string, std::string>> options{{"expandable_segments", "True"},
                                                           {"max_split_size_mb", "128"},
                                                           {"max_split_size_mb", "512"},
                                                           {"roundup_power2_divisions", "4"}};
  if (setup.fraction.value_or(parsed.per_process_memory_fraction) < 1)
    options.emplace_back("garbage_collection_threshold", "0.8");
  std::vector<CardSetup> setups{setup};
  for (const auto& [option, value] : options) {
    if (allocator::names_option(base, option)) continue;
    // The two are incompatible (pytorch#123548).
    if (option == "max_split_size_mb" && parsed.expandable_segments) continue;
    if (option == "expandable_segments" && parsed.max_split_size) continue;
    CardSetup& other = setups.emplace_back(setup);
    other.settings = base + (base.empty() ? "" : ",") + option + ":" + value;
  }
  return setups;
}

std::size_t best(const std::vector<CardReplay>& cards) {
  const auto found =
      std::min_element(cards.begin(), cards.end(),
                       [](const CardReplay& a, const CardReplay& b) { return rank(a) < rank(b); });
  return static_cast<std::size_t>(found - cards.begin());
}

std::string settings_text(const CardReplay& card) {
  return card.settings.empty() ? "PyTorch's defaults" : card.settings;
}

std::string verdict(const CardReplay& base, const CardReplay& other) {
  const auto fewer =
      static_cast<long long>(base.refused.size()) - static_cast<long long>(other.refused.size());
  const Bytes saved = base.reserved_peak.peak - other.reserved_peak.peak;
  const bool worthwhile =
      static_cast<double>(saved.count) >
      kWorthwhile * static_cast<double>(std::max<std::int64_t>(1, base.reserved_peak.peak.count));
  if (fewer < 0 || (fewer == 0 && !worthwhile))
    return settings_text(base) + ": no other settings would have done clearly better";
  std::string text = settings_text(other) + " would have ";
  if (fewer > 0)
    text += "avoided " + (other.refused.empty() && fewer == 1
                              ? std::string("the out-of-memory")
                              : std::to_string(fewer) + " of " +
                                    std::to_string(base.refused.size()) + " out-of-memory errors");
  if (worthwhile)
    text += std::string(fewer > 0 ? " and " : "") + "saved " + to_string(saved) +
            " of reserved memory (" + to_string(other.reserved_peak.peak) + " instead of " +
            to_string(base.reserved_peak.peak) + ")";
  return text;
}

// ---- Many times ----

LoadedTrace::LoadedTrace(Reader& trace, Operations& operations, const ReplayOptions& options)
    : about_(trace.about()), operations_(operations), options_(options) {
  for (Batch batch; !is_cancelled() && operations.next(batch, kOperationsInABatch); batch.clear()) {
    batches_.push_back(batch);
    if (options_.progress) options_.progress(trace);
  }
  check_device(options.operations, operations.noticed());
}

CardReplay LoadedTrace::play(const CardSetup& setup, bool to_the_end) const {
  CardPlayer card(setup, about_, operations_, options_.operations.name);
  for (const Batch& batch : batches_) {
    if (is_cancelled() || (!to_the_end && !card.result().refused.empty())) break;
    card.play(batch);
  }
  return card.result();
}

SmallestCapacity LoadedTrace::smallest_capacity(const CardSetup& setup,
                                                const std::function<void(int)>& progress) const {
  CardSetup tried = setup;
  SmallestCapacity answer;
  const auto refuses = [&](Bytes capacity) {
    tried.capacity = capacity;
    ++answer.tried;
    if (progress) progress(answer.tried);
    return !play(tried, false).refused.empty();
  };
  tried.capacity = kUnlimited;
  const CardReplay unlimited = play(tried);
  ++answer.tried;
  answer.step =
      step_of(allocator::parse_settings(unlimited.settings, unlimited.version), unlimited.version);
  if (!unlimited.refused.empty()) return answer;
  const double peak = static_cast<double>(unlimited.statistics.reserved_bytes.all.peak);
  Bytes enough = rounded_up(peak / unlimited.fraction, answer.step);
  while (refuses(enough) && enough < kUnlimited / 2 && !is_cancelled()) enough = enough * 2;
  // Invariant of the bisection: `enough` refuses nothing, `too_little` refuses a request.
  const Bytes top = enough;
  Bytes too_little{0};
  while (enough - too_little > answer.step && !is_cancelled()) {
    const std::int64_t steps = (enough - too_little).count / answer.step.count;
    const Bytes middle = too_little + answer.step * (steps / 2);
    (refuses(middle) ? too_little : enough) = middle;
  }
  answer.capacity = enough;
  const std::int64_t steps = (top - enough).count / answer.step.count;
  const auto checks = std::min<std::int64_t>(kChecksAbove, steps - 1);
  for (std::int64_t i = 1; i <= checks && !is_cancelled(); ++i) {
    const Bytes above = enough + answer.step * (steps * i / (checks + 1));
    if (above > enough && refuses(above)) answer.refused_above.push_back(above);
  }
  return answer;
}

}  // namespace headroom::trace
