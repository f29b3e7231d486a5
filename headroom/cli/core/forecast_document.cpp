#include "headroom/cli/core/forecast_document.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "headroom/base/time.h"
#include "headroom/cli/core/cards_to_fill.h"
#include "headroom/gpu/profile.h"
#include "headroom/model/stored_precision.h"

namespace headroom::cli {
namespace {

using forecast::Forecast;
using gpu::SimulatedCard;

Json parts_json(const forecast::MemoryParts& parts) {
  return {{"parameters_bytes", parts.parameters.count},
          {"buffers_bytes", parts.buffers.count},
          {"inputs_bytes", parts.inputs.count},
          {"gradients_bytes", parts.gradients.count},
          {"optimizer_bytes", parts.optimizer.count},
          {"activations_bytes", parts.activations.count},
          {"temporaries_bytes", parts.temporaries.count},
          {"workspace_bytes", parts.workspace.count},
          {"rounding_bytes", parts.rounding.count}};
}

// Active bytes are the rounded tensors, without workspaces.
Json peak_json(const Forecast& forecast) {
  const forecast::MemoryParts& parts = forecast.at_peak;
  const Bytes allocated = parts.total();
  return {
      {"allocated_bytes", allocated.count},
      {"active_bytes", (allocated - parts.workspace).count},
      {"requested_bytes", (allocated - parts.rounding).count},
      {"reserved_bytes", forecast.reserved.count},
      {"process_bytes", forecast.process.count},
      {"phase", to_string(forecast.phase)},
      {"step",
       forecast.settings.mode == model::Mode::train ? std::min(2, forecast.settings.steps) : 1}};
}

Json modules_json(const Forecast& forecast) {
  Json modules = Json::array();
  for (const auto& module : forecast.by_module)
    modules.push_back({{"name", module.name}, {"peak_bytes", module.bytes.count}});
  std::stable_sort(modules.begin(), modules.end(), [](const Json& one, const Json& other) {
    return one.at("peak_bytes").get<std::int64_t>() > other.at("peak_bytes").get<std::int64_t>();
  });
  return modules;
}

// A forecast for one card; the card with the least memory left decides.
struct Priced {
  Forecast forecast;
  const SimulatedCard* card = nullptr;
  [[nodiscard]] Bytes spare() const { return usable(*card) - forecast.process; }
  [[nodiscard]] bool fits() const { return spare() >= Bytes{0}; }
};

std::vector<Priced> priced(const model::NamedModel& model, const model::Settings& settings,
                           const std::vector<SimulatedCard>& cards) {
  std::vector<Priced> all;
  for (const SimulatedCard& card : cards)
    all.push_back(
        {forecast::forecast_of(model.config, settings, gpu::find_profile(card.profile)), &card});
  if (all.empty()) all.push_back({forecast::forecast_of(model.config, settings), nullptr});
  return all;
}

const Priced& tightest_of(const std::vector<Priced>& all) {
  return *std::min_element(all.begin(), all.end(), [](const Priced& one, const Priced& other) {
    return one.spare() < other.spare();
  });
}

Json devices_json(const std::vector<Priced>& all) {
  Json devices = Json::array();
  for (const Priced& one : all)
    devices.push_back({{"name", one.card->name},
                       {"total_bytes", one.card->total.count},
                       {"peak", peak_json(one.forecast)},
                       {"fits", one.fits()},
                       {"spare_bytes", one.spare().count}});
  return devices;
}

Json notes_of(const model::NamedModel& model, const Forecast& forecast) {
  Json notes = Json::array();
  if (!model.note.empty()) notes.push_back(model.note);
  for (std::string& note : unheeded_precision(model.config, forecast.settings))
    notes.push_back(std::move(note));
  const auto& defaulted = model.config.defaulted();  // the document lists these separately
  for (const std::string& assumed : forecast.assumed)
    if (std::find(defaulted.begin(), defaulted.end(), assumed) == defaulted.end())
      notes.push_back(assumed);
  if (forecast.on_host.count > 0)
    notes.push_back("In the host's memory: " + to_string(forecast.on_host));
  if (forecast.on_disk.count > 0) notes.push_back("On disk: " + to_string(forecast.on_disk));
  return notes;
}

}  // namespace

Json device_json(const SimulatedCard* card) {
  if (card == nullptr) return {};
  return {{"name", card->name},
          {"total_bytes", card->total.count},
          {"usable_bytes", usable(*card).count}};
}

Json model_json(const model::NamedModel& model, long long parameters,
                long long trainable_parameters) {
  return {{"name", model.name},
          {"parameters", parameters},
          {"trainable_parameters", trainable_parameters},
          {"defaulted", model.config.defaulted()}};
}

Json rule_json(const forecast::QuickEstimate& rule) {
  return {{"weights_bytes", rule.weights.count},     {"gradients_bytes", rule.gradients.count},
          {"optimizer_bytes", rule.optimizer.count}, {"activations_bytes", rule.activations.count},
          {"total_bytes", rule.total().count},       {"why", rule.why}};
}

Json forecast_document(const model::NamedModel& model, const model::Settings& settings,
                       const std::vector<SimulatedCard>& cards) {
  const Clock::time_point begin = Clock::now();
  const std::vector<Priced> all = priced(model, settings, cards);
  const Priced& found = tightest_of(all);
  const double took_s = Seconds(Clock::now() - begin).count();
  const Forecast& forecast = found.forecast;
  const Json peak = peak_json(forecast);
  Json document = {{"schema", 1},
                   {"method", "formula"},
                   {"model", model_json(model, forecast.parameters, forecast.trainable_parameters)},
                   {"settings", model::to_json(forecast.settings)},
                   {"device", device_json(found.card)},
                   {"peak", peak},
                   {"at_peak", parts_json(forecast.at_peak)},
                   {"by_module", modules_json(forecast)},
                   {"per_step", Json::array()}};
  document["per_step"].push_back(
      {{"step", peak.at("step")}, {"peak_allocated_bytes", peak.at("allocated_bytes")}});
  const bool limited = found.card != nullptr;
  document["fits"] = limited ? Json(found.fits()) : Json();
  document["spare_bytes"] = limited ? Json(found.spare().count) : Json();
  if (all.size() > 1) document["devices"] = devices_json(all);
  document["host_bytes"] = forecast.on_host.count;
  document["disk_bytes"] = forecast.on_disk.count;
  document["notes"] = notes_of(model, forecast);
  document["advice"] = Json::array();
  document["took_s"] = took_s;
  return document;
}

}  // namespace headroom::cli
