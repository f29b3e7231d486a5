#include "headroom/rehearse/floor.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "headroom/allocator/settings.h"
#include "headroom/base/error.h"
#include "headroom/gpu/catalogue.h"

namespace headroom::rehearse {
namespace {

constexpr int kShares[] = {90, 80, 70, 60, 50, 40, 30, 20, 10};  // percent of what is needed
constexpr int kSteps = 6;  // by the last one, what is moved has settled
constexpr double kClose = 0.01;

OnLess on_cards_of(Orders orders, Bytes process) {
  for (gpu::SimulatedCard& card : orders.cards) card.total = card.reserved + process;
  // As for `headroom run`.
  if (const std::string allocator = allocator::recommended_variable(orders.cards.front().total);
      !allocator.empty())
    orders.environment.push_back(allocator);
  if (orders.say) orders.say("trying " + to_string(process));
  const Rehearsal tried = rehearse(orders);
  if (!tried.ran_out_of_memory && (tried.cards.empty() || !tried.is_whole())) {
    if (orders.say) orders.say("the script's own output:\n" + tried.hidden_output);
    throw UnavailableError("rehearse", "the script failed on a card of " + to_string(process) +
                                           " beside --spill; its own output is above");
  }
  const gpu::SimulatedCard& card = orders.cards.front();
  const double link = gpu::rates_for(card.name, card.total).pcie_gb_s * 1e9;
  return {.process = process,
          .ends = !tried.ran_out_of_memory,
          .waiting = tried.spilled.waiting,
          .refused = tried.spilled.refused_in_step,
          .moved = tried.spilled.moved_in_step,
          .seconds = 2 * static_cast<double>(tried.spilled.moved_in_step.count) / link};
}

}  // namespace

std::optional<OnLess> Floor::least() const {
  std::optional<OnLess> least;
  for (const OnLess& one : tried)
    if (one.ends) least = one;
  return least;
}

Floor find_floor(const Orders& orders, Bytes needs) {
  Orders smaller = orders;
  smaller.spill = smaller.hides_output = true;
  smaller.keeps_events = false;
  smaller.steps = std::max(orders.steps, kSteps);
  Floor floor{.needs = needs, .tried = {}, .here = {}};
  const auto share = [&](double part) {
    return Bytes{static_cast<std::int64_t>(part * static_cast<double>(needs.count))};
  };
  double good = 1, bad = 0;
  const auto ends = [&](double part) {
    floor.tried.push_back(on_cards_of(smaller, share(part)));
    (floor.tried.back().ends ? good : bad) = part;
    return floor.tried.back().ends;
  };
  for (const int percent : kShares)
    if (!ends(percent / 100.0)) break;
  while (good - bad > kClose * good) (void)ends((good + bad) / 2);
  std::sort(floor.tried.begin(), floor.tried.end(),
            [](const OnLess& one, const OnLess& other) { return one.process > other.process; });
  const Bytes here = gpu::usable(*std::min_element(
      orders.cards.begin(), orders.cards.end(),
      [](const auto& one, const auto& other) { return gpu::usable(one) < gpu::usable(other); }));
  if (here < needs) floor.here = on_cards_of(smaller, here);
  return floor;
}

Json to_json(const Floor& floor) {
  const auto row = [](const OnLess& one) {
    return Json{{"process_bytes", one.process.count}, {"ends", one.ends},
                {"waiting_bytes", one.waiting.count}, {"refused", one.refused},
                {"moved_bytes", one.moved.count},     {"at_most_s", one.seconds}};
  };
  const auto least = floor.least();
  Json json{{"needs_process_bytes", floor.needs.count},
            {"floor_process_bytes", least ? least->process.count : floor.needs.count},
            {"here", floor.here ? row(*floor.here) : Json()},
            {"tried", Json::array()}};
  for (const OnLess& one : floor.tried) json["tried"].push_back(row(one));
  return json;
}

}  // namespace headroom::rehearse
