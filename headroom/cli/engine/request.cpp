#include "headroom/cli/engine/request.h"

#include <nlohmann/json.hpp>

#include "headroom/dryrun/dry_run.h"
#include "headroom/gpu/simulated_json.h"

namespace headroom::cli {

std::vector<gpu::SimulatedCard> limited_cards_of(const Json& request) {
  std::vector<gpu::SimulatedCard> cards;
  for (const Json& card : request.at("cards")) cards.push_back(gpu::card_from_json(card));
  return cards;
}

std::string text_or_none(const Json& value) {
  return value.is_null() ? std::string() : value.get<std::string>();
}

std::vector<gpu::SimulatedCard> cards_of(const Json& request) {
  std::vector<gpu::SimulatedCard> cards = limited_cards_of(request);
  if (cards.empty()) cards.push_back(dryrun::card_for("unlimited"));
  return cards;
}

sim::Rules rules_of(const Json& request) {
  return request.at("rules") == "cpu" ? sim::Rules::cpu : sim::Rules::cuda;
}

std::optional<allocator::Settings> allocator_of(const Json& request) {
  const Json& text = request.at("allocator");
  if (text.is_null()) return {};
  return allocator::parse_settings(text.get<std::string>());
}

}  // namespace headroom::cli
