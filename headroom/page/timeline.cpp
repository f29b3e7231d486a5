#include "headroom/page/timeline.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <unordered_map>

#include "headroom/base/error.h"
#include "headroom/page/detail/category_by_life.h"
#include "headroom/page/detail/segment_builder.h"

namespace headroom::page {
namespace {

using allocator::AllocatorEvent;
using allocator::CachingAllocator;

constexpr Instant kMostInstants = std::numeric_limits<Instant>::max() - 1;

struct OriginHash {
  std::size_t operator()(const Origin& origin) const {
    const std::uint64_t names =
        std::uint64_t{origin.module} << 40 ^ std::uint64_t{origin.operation} << 20 ^ origin.line;
    return std::hash<std::uint64_t>()(names * 31 + static_cast<std::uint64_t>(origin.category));
  }
};

// Adds a value that lasts until the next one.
template <typename Value>
void lasts_from(std::vector<std::pair<Instant, Value>>& runs, Instant instant, Value value) {
  if (!runs.empty() && runs.back().second == value) return;
  if (!runs.empty() && runs.back().first == instant) runs.pop_back();
  if (runs.empty() || runs.back().second != value) runs.emplace_back(instant, value);
}

class TimelineFollower final : public trace::Follower {
 public:
  explicit TimelineFollower(Timeline& timeline) : timeline_(timeline) {}

  void before(const trace::Event& event, std::uint64_t number) override {
    cause_ = event;
    number_ = number;
    changed_ = false;
    ++timeline_.events;
  }

  void on(const AllocatorEvent& allocator_event) override {
    changed_ = changed_ || allocator_event.kind != AllocatorEvent::Kind::free_completed;
    switch (allocator_event.kind) {
      case AllocatorEvent::Kind::alloc:
        return add(allocator_event);
      case AllocatorEvent::Kind::free_requested:
        return remove(allocator_event.address);
      case AllocatorEvent::Kind::oom:
        return refuse({.asked = cause_.bytes, .free = free_on_card(allocator_event.address)});
      case AllocatorEvent::Kind::free_completed:
        return;
      default:
        segments_.add(next_instant(), allocator_event);
    }
  }

  void after(const trace::Event& event, const CachingAllocator& card) override {
    if (event.kind == trace::Kind::oom)
      refuse({.asked = event.bytes, .free = free_on_card(event.address), .recorded = true});
    if (event.kind == trace::Kind::mark) marks_.emplace_back(next_instant(), event.operation);
    if (changed_) add_instant(event, card.statistics());
  }

  void finish(const trace::Names& names) {
    for (const auto& [instant, name] : marks_)
      timeline_.marks.emplace_back(instant, std::string(names.text(name)));
    timeline_.tensors.shrink_to_fit();
    for (TensorLife& tensor : timeline_.tensors)
      if (tensor.died == kLives) tensor.died = timeline_.instants();
    // Marks and refusals behind the last change of memory.
    const Instant last = timeline_.instants() == 0 ? 0 : timeline_.instants() - 1;
    for (auto& [instant, text] : timeline_.marks) instant = std::min(instant, last);
    for (Refusal& refusal : timeline_.refusals) refusal.instant = std::min(refusal.instant, last);
    if (timeline_.instants() == 0) return;
    timeline_.segments_at_peak =
        segments_.at(timeline_.peak, timeline_.tensors, living_at(timeline_, timeline_.peak));
  }

 private:
  static constexpr Instant kLives = std::numeric_limits<Instant>::max();

  [[nodiscard]] Instant next_instant() const { return timeline_.instants(); }

  static std::optional<Bytes> free_on_card(std::uint64_t bytes) {
    constexpr auto kMost = static_cast<std::uint64_t>(allocator::kUnlimited.count);
    if (bytes >= kMost) return {};
    return Bytes{static_cast<std::int64_t>(bytes)};
  }

  void add(const AllocatorEvent& allocator_event) {
    live_[allocator_event.address] = static_cast<std::uint32_t>(timeline_.tensors.size());
    timeline_.tensors.push_back({.born = next_instant(),
                                 .died = kLives,
                                 .bytes = allocator_event.size,
                                 .block = allocator_event.block,
                                 .address = allocator_event.address,
                                 .origin = origin_of(cause_)});
  }

  void remove(std::uint64_t address) {
    const auto found = live_.find(address);
    if (found == live_.end()) return;
    timeline_.tensors[found->second].died = next_instant();
    live_.erase(found);
  }

  std::uint32_t origin_of(const trace::Event& event) {
    const Origin origin{event.category, event.module, event.operation, event.line};
    const auto [found, is_new] =
        origins_.try_emplace(origin, static_cast<std::uint32_t>(timeline_.origins.size()));
    if (is_new) timeline_.origins.push_back(origin);
    return found->second;
  }

  void refuse(Refusal refusal) {
    changed_ = true;
    refusal.instant = next_instant();
    timeline_.refusals.push_back(refusal);
  }

  void mark(const trace::Event& event) { marks_.emplace_back(next_instant(), event.operation); }

  void add_instant(const trace::Event& event, const allocator::Statistics& now) {
    if (timeline_.instants() == kMostInstants)
      throw InputError("report", "the trace has more than 4 billion events");
    const Instant instant = next_instant();
    timeline_.event_numbers.push_back(number_);
    timeline_.times_ns.push_back(event.time_ns);
    timeline_.allocated.emplace_back(now.allocated_bytes.all.current);
    timeline_.reserved.emplace_back(now.reserved_bytes.all.current);
    if (timeline_.allocated[instant] > timeline_.allocated[timeline_.peak])
      timeline_.peak = instant;
    if (timeline_.reserved[instant] > timeline_.reserved[timeline_.reserved_peak])
      timeline_.reserved_peak = instant;
    lasts_from(timeline_.phases, instant, event.phase);
    lasts_from(timeline_.steps, instant, event.step);
  }

  Timeline& timeline_;
  trace::Event cause_;
  std::uint64_t number_ = 0;
  bool changed_ = false;
  std::unordered_map<std::uint64_t, std::uint32_t> live_;  // by address: index of the tensor
  std::unordered_map<Origin, std::uint32_t, OriginHash> origins_;
  std::vector<std::pair<Instant, trace::Name>> marks_;  // their texts are known at the end
  detail::SegmentBuilder segments_;
};

bool tells_phases(const Timeline& timeline) {
  const auto has = [&](trace::Phase phase) {
    return std::any_of(timeline.phases.begin(), timeline.phases.end(),
                       [=](const auto& run) { return run.second == phase; });
  };
  return has(trace::Phase::forward) && has(trace::Phase::backward);
}

void add_categories(Timeline& timeline) {
  std::vector<Origin> origins;
  std::unordered_map<Origin, std::uint32_t, OriginHash> numbers;
  for (TensorLife& tensor : timeline.tensors) {
    Origin origin = timeline.origins[tensor.origin];
    if (origin.category == trace::Category::unknown)
      origin.category = detail::category_by_life(timeline, tensor);
    const auto [found, is_new] =
        numbers.try_emplace(origin, static_cast<std::uint32_t>(origins.size()));
    if (is_new) origins.push_back(origin);
    tensor.origin = found->second;
  }
  timeline.origins = std::move(origins);
}

template <typename Value>
Value last_run(const std::vector<std::pair<Instant, Value>>& runs, Instant instant) {
  const auto after = std::upper_bound(runs.begin(), runs.end(), instant,
                                      [](Instant at, const auto& run) { return at < run.first; });
  return after == runs.begin() ? Value{} : std::prev(after)->second;
}

}  // namespace

Timeline timeline_of(trace::Reader& trace, const trace::ReplayOptions& options) {
  Timeline timeline;
  trace::ReplayOptions followed = options;
  if (const trace::About& about = trace.about();
      followed.setup.capacity == allocator::kUnlimited && about.is_within_capacity)
    followed.setup.capacity = about.capacity.value_or(allocator::kUnlimited);
  TimelineFollower follower(timeline);
  followed.follower = &follower;
  trace::Replay replayed = trace::replay(trace, followed);
  timeline.about = trace.about();
  timeline.names = trace.names();
  timeline.device = replayed.noticed.device;
  timeline.card = std::move(replayed.card);
  timeline.noticed = std::move(replayed.noticed);
  follower.finish(timeline.names);
  if (tells_phases(timeline)) add_categories(timeline);
  return timeline;
}

std::vector<std::uint32_t> living_at(const Timeline& timeline, Instant instant) {
  std::vector<std::uint32_t> living;
  for (std::size_t i = 0; i < timeline.tensors.size(); ++i)
    if (timeline.tensors[i].born <= instant && instant < timeline.tensors[i].died)
      living.push_back(static_cast<std::uint32_t>(i));
  return living;
}

std::optional<Instant> peak_of_step(const Timeline& timeline, std::uint32_t step) {
  std::optional<Instant> peak;
  for (std::size_t run = 0; run < timeline.steps.size(); ++run) {
    if (timeline.steps[run].second != step) continue;
    const Instant end =
        run + 1 < timeline.steps.size() ? timeline.steps[run + 1].first : timeline.instants();
    for (Instant i = timeline.steps[run].first; i < end; ++i)
      if (!peak || timeline.allocated[i] > timeline.allocated[*peak]) peak = i;
  }
  return peak;
}

trace::Phase phase_at(const Timeline& timeline, Instant instant) {
  return last_run(timeline.phases, instant);
}

std::uint32_t step_at(const Timeline& timeline, Instant instant) {
  return last_run(timeline.steps, instant);
}

}  // namespace headroom::page
