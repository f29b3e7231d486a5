#include "headroom/supervise/place.h"

#include <algorithm>

#include "headroom/allocator/settings.h"
#include "headroom/base/file.h"
#include "headroom/base/text.h"

namespace headroom::supervise {
namespace {

std::string visible_devices(const Place& place, bool by_uuid) {
  std::vector<std::string> names;
  for (const auto& [card, usable] : place.cards)
    names.push_back(by_uuid || card.slice ? to_string(card.uuid) : std::to_string(card.index));
  return join(names, ",");
}

std::optional<Bytes> smallest_total(const Place& place) {
  std::optional<Bytes> total;
  for (const auto& [card, usable] : place.cards)
    if (card.memory) total = std::min(total.value_or(card.memory->total), card.memory->total);
  return total;
}

}  // namespace

std::optional<Bytes> Place::room() const {
  std::optional<Bytes> least;
  for (const auto& pick : cards) least = std::min(least.value_or(pick.usable), pick.usable);
  return least;
}

std::string Place::name() const {
  std::vector<std::string> names;
  names.reserve(cards.size());
  for (const auto& pick : cards) names.push_back(label(pick.card));
  return names.empty() ? "the CPU" : join(names, " and ");
}

std::vector<std::string> environment_of(const Place& place, const gpu::Devices& devices,
                                        bool by_uuid) {
  const bool simulated = devices.kind == gpu::Devices::Kind::simulated;
  const std::string for_headroom = place.cards.empty() ? "cpu" : simulated ? devices.text : "auto";
  std::vector<std::string> variables{"CUDA_VISIBLE_DEVICES=" + visible_devices(place, by_uuid),
                                     "HEADROOM_GPUS=" + for_headroom};
  if (place.cards.empty()) return variables;
  variables.push_back("CUDA_DEVICE_ORDER=PCI_BUS_ID");
  if (place.lease) variables.push_back("HEADROOM_LEASE=" + place.lease->claim().id);
  if (const std::string allocator = allocator::recommended_variable(smallest_total(place));
      !allocator.empty())
    variables.push_back(allocator);
  return variables;
}

}  // namespace headroom::supervise
