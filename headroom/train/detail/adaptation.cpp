#include "headroom/train/detail/adaptation.h"

#include <algorithm>
#include <tuple>
#include <vector>

namespace headroom::train::detail {
namespace {

constexpr std::size_t kRemembered = 16;
constexpr double kUnusual = 1.5;  // times the median
constexpr int kThrashing = 3;
constexpr std::int64_t kLongestWait = 64;  // times grow_after

// Fewer techniques, then fewer parts.
bool is_faster(const Plan& one, const Plan& other, std::int64_t rows) {
  return std::tuple(one.techniques.size(), count_of_parts(one, rows)) <
         std::tuple(other.techniques.size(), count_of_parts(other, rows));
}

Event::Kind kind_of(const Plan& from, const Plan& to) {
  return from.techniques.size() == to.techniques.size() ? Event::Kind::shrink
                                                        : Event::Kind::technique;
}

// Without prices: the last technique goes first, then the micro-batch grows.
Plan next_larger(const Plan& now, const Plan& wish, std::int64_t rows) {
  Plan plan = now;
  const auto& all = plan::rungs();
  const auto last = std::find_if(all.rbegin(), all.rend(), [&](const plan::Rung& rung) {
    return !rung.lasts && now.has(rung.name) && !wish.has(rung.name);
  });
  if (last != all.rend())
    plan.techniques.erase(last->name);
  else
    plan.micro_batch = std::min(2 * largest_part(now, rows), largest_part(wish, rows));
  if (plan.micro_batch != 0) plan.micro_batch = largest_part(plan, rows);
  return plan;
}

}  // namespace

Plan smaller_parts(const Ladder& ladder, const Plan& now, const Work& work) {
  Plan plan = now;
  const std::int64_t part = largest_part(now, work.rows),
                     smaller = ladder.micro_batch_of(part * 3 / 4, work);
  if (smaller < part) plan.micro_batch = smaller;
  return plan;
}

Plan Adaptation::first(const Work& work, const PerStage& cards) const {
  return ladder_.fastest(wish_, work, cards).value_or(wish_);
}

bool Adaptation::is_unusual(const Work& work) const {
  if (scales_.size() < 2) return false;
  std::vector<double> sorted(scales_.begin(), scales_.end());
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return work.scale > kUnusual * *middle;
}

std::optional<Ladder::Move> Adaptation::before(const Plan& now, const Work& work,
                                               const std::optional<PerStage>& cards) {
  const auto back = back_to_usual(now, work);
  const Plan& plan = back ? back->plan : now;
  if (cards)
    if (const auto less = smaller(plan, work, *cards)) return less;
  if (back) return back;
  return larger(plan, work, cards);
}

std::optional<Ladder::Move> Adaptation::back_to_usual(const Plan& now, const Work& work) {
  if (!usual_ || is_unusual(work)) return {};
  const Plan plan = keeping_what_lasts(*usual_, now);
  usual_.reset();
  if (plan == now) return {};
  return Ladder::Move{Event::Kind::grow, plan};
}

std::optional<Ladder::Move> Adaptation::smaller(const Plan& now, const Work& work,
                                                const PerStage& cards) {
  if (prices_ == nullptr) return {};
  const auto needed = prices_->needed(now, work);
  if (!needed || needed->fits(cards)) return {};
  const auto plan = ladder_.fastest(now, work, cards);
  if (!plan || *plan == now) return {};
  if (is_unusual(work) && !usual_) usual_ = now;
  clean_ = 0;
  return Ladder::Move{kind_of(now, *plan), *plan};
}

std::optional<Ladder::Move> Adaptation::larger(const Plan& now, const Work& work,
                                               const std::optional<PerStage>& cards) {
  Plan wish = keeping_what_lasts(wish_, now);
  wish.device = now.device;
  wish.allocator = now.allocator;
  if (clean_ < wait_ || usual_ || is_unusual(work) || !is_faster(wish, now, work.rows)) return {};
  clean_ = 0;
  const bool is_priced = prices_ != nullptr && cards && prices_->needed(now, work);
  const auto plan = is_priced ? ladder_.fastest(wish, work, *cards)
                              : std::optional(next_larger(now, wish, work.rows));
  if (!plan || !is_faster(*plan, now, work.rows) || adds_what_lasts(*plan, now)) return {};
  since_growth_ = 0;
  return Ladder::Move{Event::Kind::grow, *plan};
}

void Adaptation::failed(const Plan& plan, const Work& work) {
  if (is_unusual(work) && !usual_) usual_ = plan;
  if (since_growth_ && *since_growth_ < wait_)
    wait_ = std::min(2 * wait_, kLongestWait * grow_after_);
  since_growth_.reset();  // once for each growth
  clean_ = -1;            // this step will commit, and is not one without trouble
}

std::optional<Ladder::Move> Adaptation::after(const Plan& now, const Work& work,
                                              std::int64_t retries) {
  scales_.push_back(work.scale);
  if (scales_.size() > kRemembered) scales_.pop_front();
  ++clean_;
  if (since_growth_) ++*since_growth_;
  thrashing_ = retries > 0 ? thrashing_ + 1 : 0;
  if (thrashing_ < kThrashing) return {};
  thrashing_ = 0;
  clean_ = 0;
  wait_ = std::min(2 * wait_, kLongestWait * grow_after_);
  const Plan plan = smaller_parts(ladder_, now, work);
  if (plan == now) return {};
  return Ladder::Move{Event::Kind::thrash, plan};
}

}  // namespace headroom::train::detail
