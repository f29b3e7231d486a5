#include "headroom/gpu/machine.h"

#include <algorithm>

namespace headroom::gpu {

const char* to_string(ProcessKind kind) {
  constexpr const char* kNames[] = {"compute", "graphics", "other-namespace"};
  return kNames[static_cast<int>(kind)];
}

std::optional<Seconds> age(const Card& card, Clock::time_point now) {
  if (!card.sampled) return {};
  return std::max(Seconds(0), Seconds(now - *card.sampled));
}

bool is_fresh(const Card& card, Clock::time_point now) {
  const auto old = age(card, now);
  return old && *old <= kFreshFor;
}

std::optional<Bytes> usable_now(const Card& card) {
  if (!card.memory || card.stuck) return {};
  if (card.mig_enabled || card.withheld.everything || card.compute_mode == ComputeMode::prohibited)
    return Bytes{0};
  const bool exclusive = card.compute_mode == ComputeMode::exclusive_process ||
                         card.compute_mode == ComputeMode::exclusive_thread;
  if (exclusive) {
    if (!card.processes) return {};
    const auto holds_context = [](const GpuProcess& p) { return p.kind != ProcessKind::graphics; };
    if (std::any_of(card.processes->begin(), card.processes->end(), holds_context)) return Bytes{0};
  }
  return std::max(Bytes{0}, card.memory->free - card.withheld.now - card.withheld.always);
}

std::string label(const Card& card) {
  const std::string text = "GPU " + std::to_string(card.index);
  return card.slice ? text + " slice " + short_text(card.uuid) : text;
}

std::optional<Bytes> smallest_total(const Machine& machine) {
  std::optional<Bytes> smallest;
  for (const Card& card : machine.cards)
    if (card.memory) smallest = std::min(smallest.value_or(card.memory->total), card.memory->total);
  return smallest;
}

std::string cuda_version(int driver) {
  return std::to_string(driver / 1000) + "." + std::to_string(driver % 1000 / 10);
}

}  // namespace headroom::gpu
