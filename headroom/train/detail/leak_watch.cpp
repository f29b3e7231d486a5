#include "headroom/train/detail/leak_watch.h"

#include <algorithm>
#include <map>
#include <vector>

#include "headroom/memory/live.h"

namespace headroom::train::detail {
namespace {

constexpr std::int64_t kWindow = 8;  // steps
constexpr std::int64_t kRises = 3;   // windows
constexpr Bytes kLeast{std::int64_t{64} << 10};

struct Held {
  std::string by;
  Bytes bytes;
  std::int64_t count = 0;
};

std::vector<Held> holders_of(c10::Device device) {
  std::map<std::string, Held> by_place;
  for (const memory::LiveAllocation& one : memory::live_allocations(device)) {
    if (!one.is_recorded) continue;
    const std::string place = one.module.empty()      ? one.operation
                              : one.operation.empty() ? one.module
                                                      : one.operation + " in " + one.module;
    Held& held = by_place[place];
    held.by = place.empty() ? "an unnamed operator" : place;
    held.bytes += one.bytes;
    ++held.count;
  }
  std::vector<Held> all;
  for (const auto& [place, held] : by_place) all.push_back(held);
  std::sort(all.begin(), all.end(), [](const Held& a, const Held& b) { return a.bytes > b.bytes; });
  return all;
}

}  // namespace

void LeakWatch::begin(c10::Device device, const Plan& plan) {
  history_.reset();
  recorder_.reset();
  device_ = device;
  plan_ = plan;
  in_window_ = rises_ = 0;
  before_ = Bytes{};
}

std::optional<std::string> LeakWatch::after(c10::Device device, const Plan& plan, std::int64_t step,
                                            Bytes allocated) {
  if (is_told_) return {};
  if (device_ != device || plan_ != plan) begin(device, plan);
  least_ = in_window_ == 0 ? allocated : std::min(least_, allocated);
  if (++in_window_ < kWindow) return {};
  in_window_ = 0;
  const Bytes before = std::exchange(before_, least_);
  if (history_) {
    is_told_ = true;
    std::string words = sentence(step, allocated);
    begin(device, plan);
    return words;
  }
  const bool is_first = before == Bytes{};
  if (is_first || least_ <= before) {
    rises_ = 0;
    return {};
  }
  if (rises_++ == 0) {
    first_ = before;
    first_step_ = step - kWindow;
  }
  if (rises_ < kRises || least_ - first_ < kLeast || memory::recorder_of(device) != nullptr)
    return {};
  recorder_ = std::make_unique<trace::Recorder>();
  history_ = std::make_unique<memory::History>(device, *recorder_);
  return {};
}

std::string LeakWatch::sentence(std::int64_t step, Bytes allocated) const {
  std::string words = "memory that stays allocated after a step grows: by " +
                      to_string(allocated - first_) + " from step " + std::to_string(first_step_) +
                      " to step " + std::to_string(step);
  const std::vector<Held> holders = holders_of(*device_);
  for (std::size_t i = 0; i < std::min<std::size_t>(3, holders.size()); ++i)
    words += (i == 0 ? "; still allocated from the last 8 steps: " : ", ") +
             to_string(holders[i].bytes) + " from " + holders[i].by + " (" +
             std::to_string(holders[i].count) + " tensors)";
  return words + "; a list that keeps losses or results with their graphs is the usual cause";
}

}  // namespace headroom::train::detail
