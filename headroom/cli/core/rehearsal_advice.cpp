#include "headroom/cli/core/rehearsal_advice.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "headroom/cli/core/rehearsal_answer.h"
#include "headroom/cli/core/terminal.h"
#include "headroom/machine/cards_to_fill.h"

namespace headroom::cli {

std::vector<TriedAdvice> advice_for(const RehearsalOrders& orders, Bytes needs_now) {
  RehearsalOrders trial = without_limit(orders);
  trial.trace = trial.snapshot = trial.html = "";
  trial.hides_output = true;
  std::vector<TriedAdvice> advice;
  for (const TriedChange& change : kTriedChanges) {
    print_error(std::string("headroom rehearse: once more, ") + change.name + "\n");
    trial.change = change.name;
    const Rehearsal tried = rehearse(trial);
    if (tried.cards.empty() || !tried.is_whole()) {
      print_error(tried.hidden_output + "headroom rehearse: the script fails with " + change.name +
                  "\n");
      continue;
    }
    const RehearsedCard& on = tightest(tried, orders.cards);
    const Bytes needs = tried.needs(on.index);
    advice.push_back(
        {.change = change,
         .was_made = tried.change_was_made,
         .needs = needs,
         .saves = needs_now - needs,
         .allocated = on.report.peak.allocated,
         .fits = needs <= machine::usable(orders.cards[static_cast<std::size_t>(on.index)])});
  }
  std::sort(advice.begin(), advice.end(),
            [](const auto& one, const auto& other) { return one.needs < other.needs; });
  return advice;
}

Json to_json(const std::vector<TriedAdvice>& advice) {
  Json json{
      {"advice", Json::array()}, {"saves_nothing", Json::array()}, {"not_tried", Json::array()}};
  for (const TriedAdvice& one : advice)
    if (one.helps())
      json["advice"].push_back({{"change", one.change.name},
                                {"how", one.change.how},
                                {"peak_process_bytes", one.needs.count},
                                {"peak_allocated_bytes", one.allocated.count},
                                {"saves_process_bytes", one.saves.count},
                                {"fits", one.fits},
                                {"method", "rehearsal"}});
    else
      json[one.was_made ? "saves_nothing" : "not_tried"].push_back(one.change.name);
  return json;
}

}  // namespace headroom::cli
