#include "headroom/answer/answer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "headroom/base/error.h"
namespace headroom::answer {
namespace {

Json change_json(const plan::Saving& one, bool limited, bool dry_run) {
  return {{"change", one.option},
          {"saves_bytes", one.saves.count},
          {"time_factor", one.time_factor},
          {"changes_training", one.changes_training},
          {"peak_reserved_bytes", one.needs.count},
          {"peak_process_bytes", one.process.count},
          {"saves_process_bytes", one.saves_process.count},
          {"fits", limited ? Json(one.fits) : Json()},
          {"method", dry_run && one.can_run ? "dry-run" : "formula"},
          {"can_run", one.can_run}};
}

Json techniques_json(const std::vector<plan::Saving>& techniques, bool limited) {
  Json list = to_json(techniques, limited, /*dry_run=*/false);
  for (std::size_t i = 0; i < techniques.size(); ++i) list[i]["name"] = techniques[i].title;
  return list;
}

Json model_json(const Answer& answer) {
  Json json{{"name", answer.model},
            {"parameters", answer.parameters},
            {"trainable_parameters", answer.trainable_parameters}};
  if (answer.settings) json["defaulted"] = answer.defaulted;
  return json;
}

Json devices_json(const std::vector<OnCard>& cards) {
  Json devices = Json::array();
  for (const OnCard& on : cards)
    devices.push_back({{"name", on.card.name},
                       {"total_bytes", on.card.total.count},
                       {"peak", to_json(on.peak)},
                       {"fits", on.fits},
                       {"spare_bytes", on.spare.count}});
  return devices;
}

Json rule_json(const plan::QuickEstimate& rule) {
  return {{"weights_bytes", rule.weights.count},     {"gradients_bytes", rule.gradients.count},
          {"optimizer_bytes", rule.optimizer.count}, {"activations_bytes", rule.activations.count},
          {"total_bytes", rule.total().count},       {"why", rule.why}};
}

// The keys after the figures. Their order depends on the method.
void add_rest_by_formula(Json& json, const Answer& answer) {
  if (answer.cards.size() > 1) json["devices"] = devices_json(answer.cards);
  json["host_bytes"] = answer.on_host.count;
  json["disk_bytes"] = answer.on_disk.count;
  json["notes"] = answer.notes;
  json["advice"] = to_json(answer.advice, !answer.cards.empty(), /*dry_run=*/false);
  json["took_s"] = answer.report.took_s;
  if (answer.rule) json["rule"] = rule_json(*answer.rule);
  if (answer.techniques)
    json["techniques"] = techniques_json(*answer.techniques, !answer.cards.empty());
}

void add_rest_of_dry_run(Json& json, const Answer& answer) {
  json["notes"] = answer.notes;
  if (answer.techniques)
    json["techniques"] = techniques_json(*answer.techniques, !answer.cards.empty());
  json["advice"] = to_json(answer.advice, !answer.cards.empty(), /*dry_run=*/true);
  if (answer.cards.size() > 1) json["devices"] = devices_json(answer.cards);
}

}  // namespace

std::string_view to_string(Method method) {
  switch (method) {
    case Method::dry_run:
      return "dry-run";
    case Method::formula:
      return "formula";
    case Method::rehearsal:
      return "rehearsal";
  }
  throw InternalError("answer", "a method without a name");
}

const OnCard* Answer::tightest() const {
  const auto found =
      std::min_element(cards.begin(), cards.end(),
                       [](const auto& one, const auto& other) { return one.spare < other.spare; });
  return found == cards.end() ? nullptr : &*found;
}

Json to_json(const std::vector<plan::Saving>& changes, bool limited, bool dry_run) {
  Json list = Json::array();
  for (const plan::Saving& one : changes) list.push_back(change_json(one, limited, dry_run));
  return list;
}

Json to_json(const gpu::SimulatedCard& card) {
  return {{"name", card.name},
          {"total_bytes", card.total.count},
          {"usable_bytes", gpu::usable(card).count}};
}

Json figures_to_json(const Answer& answer) {
  const OnCard* on = answer.tightest();
  Json json = {{"schema", 1},
               {"method", to_string(answer.method)},
               {"model", model_json(answer)},
               {"settings", answer.settings ? model::to_json(*answer.settings) : Json()},
               {"device", on != nullptr ? to_json(on->card) : Json()}};
  json.update(answer.method == Method::formula ? figures_json(answer.report)
                                               : to_json(answer.report));
  json["fits"] = on != nullptr && !on->until_it_failed ? Json(on->fits) : Json();
  json["spare_bytes"] = on != nullptr ? Json(on->spare.count) : Json();
  return json;
}

Json to_json(const Answer& answer) {
  Json json = figures_to_json(answer);
  (answer.method == Method::formula ? add_rest_by_formula : add_rest_of_dry_run)(json, answer);
  return json;
}

}  // namespace headroom::answer
