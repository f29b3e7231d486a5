#include "headroom/machine/cards_to_fill.h"

#include <algorithm>

#include "headroom/base/error.h"
#include "headroom/gpu/catalogue.h"
#include "headroom/machine/look.h"

namespace headroom::machine {
namespace {

gpu::SimulatedCard fillable(const gpu::Card& card) {
  const auto usable = usable_now(card);
  if (!card.memory || !usable)
    throw UnavailableError(expectation("--gpus", "a card whose free memory is known", label(card),
                                       "--gpus sim:1x24GiB, or a card's name"));
  const gpu::DeviceProfile* profile = profile_of(card);
  return {.name = card.name,
          .total = card.memory->total,
          .reserved = card.memory->total - *usable,
          .profile = profile != nullptr ? profile->key : ""};
}

}  // namespace

const gpu::DeviceProfile* profile_of(const gpu::Card& card) {
  if (const auto* known = gpu::find_card(card.name)) return gpu::find_profile(known->profile);
  if (!card.capability) return nullptr;
  return gpu::profile_of_capability((*card.capability)[0], (*card.capability)[1]);
}

std::vector<gpu::SimulatedCard> cards_to_fill(const std::string& gpus) {
  const Look look = look_at_machine(gpus);
  std::vector<gpu::SimulatedCard> cards;
  for (const gpu::Card& card : look.machine.cards)
    if (!card.mig_enabled) cards.push_back(fillable(card));
  if (look.devices.kind != gpu::Devices::Kind::automatic) {
    if (cards.empty())
      throw UnavailableError(expectation("--gpus", "at least one GPU", look.machine.why_no_driver,
                                         "--gpus \"RTX 4090\", or sim:1x24GiB"));
    return cards;
  }
  const auto freest = std::max_element(
      cards.begin(), cards.end(),
      [](const auto& one, const auto& other) { return gpu::usable(one) < gpu::usable(other); });
  if (freest == cards.end()) return {};
  return {*freest};
}

std::vector<gpu::SimulatedCard> cards_to_fill(const std::vector<std::string>& gpus) {
  if (gpus.empty()) return cards_to_fill(std::string());
  std::vector<gpu::SimulatedCard> all;
  for (const std::string& text : gpus)
    for (gpu::SimulatedCard& card : cards_to_fill(text)) all.push_back(std::move(card));
  return all;
}

}  // namespace headroom::machine
