#include "headroom/rehearse/advice.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace headroom::rehearse {

std::vector<TriedAdvice> advice_for(const Orders& orders, Bytes needs_now) {
  Orders trial = without_limit(orders);
  trial.keeps_events = false;
  trial.hides_output = true;
  std::vector<TriedAdvice> advice;
  for (const TriedChange& change : kTriedChanges) {
    if (orders.say) orders.say(std::string("trying ") + change.name);
    trial.change = change.name;
    const Rehearsal tried = rehearse(trial);
    if (tried.cards.empty() || !tried.is_whole()) {
      if (orders.say)
        orders.say(std::string("the script fails with ") + change.name + ":\n" +
                   tried.hidden_output);
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
         .fits = needs <= gpu::usable(orders.cards[static_cast<std::size_t>(on.index)])});
  }
  return least_first(std::move(advice));
}

std::vector<TriedAdvice> least_first(std::vector<TriedAdvice> advice) {
  std::sort(advice.begin(), advice.end(),
            [](const auto& one, const auto& other) { return one.needs < other.needs; });
  return advice;
}

Json to_json(const std::vector<TriedAdvice>& advice, answer::Method method) {
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
                                {"method", to_string(method)}});
    else
      json[one.was_made ? "saves_nothing" : "not_tried"].push_back(one.change.name);
  return json;
}

}  // namespace headroom::rehearse
