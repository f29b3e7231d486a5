#include "headroom/cli/core/view/techniques_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "headroom/base/bytes.h"
#include "headroom/base/json.h"
#include "headroom/base/text.h"
#include "headroom/cli/core/view/advice_view.h"
#include "headroom/forecast/advice.h"
#include "headroom/forecast/techniques.h"
#include "headroom/gpu/catalogue.h"
#include "headroom/model/can_run.h"

namespace headroom::cli {
namespace {

forecast::TechniqueOptions options_for(const std::vector<gpu::SimulatedCard>& cards) {
  forecast::TechniqueOptions options;
  options.can_run = [](const model::Settings& settings) { return cannot_run(settings).empty(); };
  options.gpus = static_cast<int>(std::max<std::size_t>(1, cards.size()));
  const auto smallest = std::min_element(
      cards.begin(), cards.end(),
      [](const auto& one, const auto& other) { return room_of(one) < room_of(other); });
  if (smallest == cards.end()) return options;
  options.card = gpu::find_card(smallest->name);
  options.room = room_of(*smallest);
  return options;
}

Json change_json(const forecast::Technique& one, bool limited) {
  return {{"change", one.option},
          {"saves_bytes", one.saves.count},
          {"time_factor", one.time_factor},
          {"changes_training", one.changes_training},
          {"peak_reserved_bytes", one.needs.count},
          {"peak_process_bytes", one.process.count},
          {"saves_process_bytes", one.saves_process.count},
          {"fits", limited ? Json(one.fits) : Json()},
          {"method", "formula"},
          {"can_run", one.can_run}};
}

bool has_room_for(const std::string& text, const Terminal& terminal) {
  const auto width = static_cast<std::size_t>(terminal.width);
  const auto lines = split(text, '\n');
  return !terminal.is_terminal || std::all_of(lines.begin(), lines.end(), [&](const auto& line) {
    return cells(line) <= width;
  });
}

}  // namespace

Json advice_json(const model::ModelConfig& config, const model::Settings& settings,
                 const std::vector<gpu::SimulatedCard>& cards) {
  forecast::TechniqueOptions options = options_for(cards);
  if (!cannot_run(settings).empty()) options.can_run = {};
  std::vector<forecast::Technique> all = forecast::cheapest_help(config, settings, options);
  const auto fits = [](const forecast::Technique& one) { return one.fits; };
  if (options.room && std::none_of(all.begin(), all.end(), fits))
    for (forecast::Technique& one : enough_but_cannot_run(config, settings, options))
      all.push_back(std::move(one));
  Json list = Json::array();
  for (const forecast::Technique& one : all)
    list.push_back(change_json(one, options.room.has_value()));
  return list;
}

Json techniques_json(const model::ModelConfig& config, const model::Settings& settings,
                     const std::vector<gpu::SimulatedCard>& cards) {
  const forecast::TechniqueOptions options = options_for(cards);
  Json list = Json::array();
  for (const forecast::Technique& one : forecast::techniques(config, settings, options)) {
    Json row = change_json(one, options.room.has_value());
    row["name"] = one.name;
    list.push_back(std::move(row));
  }
  // The table is sorted by savings; only advice puts the cheapest first.
  std::stable_sort(list.begin(), list.end(), [](const Json& one, const Json& other) {
    return one.at("saves_bytes").get<std::int64_t>() > other.at("saves_bytes").get<std::int64_t>();
  });
  return list;
}

std::string techniques_text(const Json& document, const Terminal& terminal) {
  std::vector<std::vector<std::string>> rows;
  for (const Json& one : document.at("techniques")) {
    const Json& fits = one.at("fits");
    rows.push_back(
        {one.at("name").get<std::string>(), to_string(bytes_from(one.at("peak_process_bytes"))),
         to_string(bytes_from(one.at("saves_process_bytes"))),
         fmt::format("{:.2f} x", one.at("time_factor").get<double>()),
         fits.is_null()     ? ""
         : fits.get<bool>() ? "yes"
                            : "no",
         one.at("changes_training").get<bool>() ? "yes" : "no",
         one.at("can_run").get<bool>() ? "" : "not yet", one.at("change").get<std::string>()});
  }
  Terminal endless = terminal;
  endless.is_terminal = false;
  const std::string title = "\nWhat saves memory here, by formula\n";
  const std::string text = table({{"technique"},
                                  {"needs", true},
                                  {"saves", true},
                                  {"time", true},
                                  {"fits"},
                                  {"changes result"},
                                  {"runs"},
                                  {"option"}},
                                 rows, endless);
  if (has_room_for(text, terminal)) return title + text;
  std::string runs, cannot_run;  // a table cut to the terminal's width would lose the options
  for (const Json& one : document.at("techniques"))
    (one.at("can_run").get<bool>() ? runs : cannot_run) +=
        change_text(one, document.at("device"), terminal);
  return title + runs + (cannot_run.empty() ? "" : "Headroom cannot run yet\n" + cannot_run);
}

}  // namespace headroom::cli
