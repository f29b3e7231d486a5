#include "headroom/watch/gpus_json.h"

#include <nlohmann/json.hpp>

namespace headroom::watch {
namespace {

constexpr std::string_view kNoAnswer = ": the driver does not answer, ";

Json process_json(const gpu::GpuProcess& process) {
  Json json{{"pid", or_null(process.pid)},
            {"user", or_null(process.user)},
            {"command", or_null(process.command)},
            {"used_bytes", or_null(process.used)},
            {"kind", to_string(process.kind)},
            {"started", process.started ? Json(utc_timestamp(*process.started)) : Json()}};
  if (process.peak) json["peak_bytes"] = process.peak->count;
  return json;
}

Json memory_or_null(const gpu::Card& card, Bytes gpu::CardMemory::*part) {
  return card.memory ? Json(((*card.memory).*part).count) : Json();
}

Json card_json(const gpu::Card& card, Clock::time_point now) {
  Json json{{"index", card.index}, {"uuid", to_string(card.uuid)}, {"name", card.name}};
  json["pci"] = card.pci.empty() ? Json() : Json(card.pci);
  json["total_bytes"] = memory_or_null(card, &gpu::CardMemory::total);
  json["used_bytes"] = memory_or_null(card, &gpu::CardMemory::used);
  json["reserved_bytes"] = card.memory ? or_null(card.memory->reserved) : Json();
  json["free_bytes"] = memory_or_null(card, &gpu::CardMemory::free);
  json["usable_bytes"] = is_fresh(card, now) ? or_null(usable_now(card)) : Json();
  // The document's contract is a share from 0 to 1; the driver reports whole percents.
  json["utilization"] = card.utilization ? Json(*card.utilization / 100.0) : Json();
  json["memory_utilization"] =
      card.memory_utilization ? Json(*card.memory_utilization / 100.0) : Json();
  json["temperature_c"] = or_null(card.temperature_c);
  json["power_w"] = or_null(card.power_w);
  json["persistence"] = or_null(card.persistence);
  json["simulated"] = card.simulated;
  json["stale"] = !is_fresh(card, now);
  const auto old = age(card, now);
  json["age_s"] = old ? Json(old->count()) : Json();
  if (card.slice)
    json["mig"] = {{"parent", to_string(card.slice->parent)},
                   {"gpu_instance", or_null(card.slice->gpu_instance)},
                   {"compute_instance", or_null(card.slice->compute_instance)}};
  json["processes"] = Json::array();
  if (!card.processes) json["processes"] = Json();
  for (const auto& process : card.processes.value_or(std::vector<gpu::GpuProcess>{}))
    json["processes"].push_back(process_json(process));
  return json;
}

}  // namespace

Json gpus_document(const gpu::Machine& machine, const GpusNotes& notes, Clock::time_point now) {
  Json document{{"schema", 1},
                {"driver", or_null(machine.driver)},
                {"gpus", Json::array()},
                {"warnings", notes.warnings},
                {"advice", notes.advice}};
  for (const gpu::Card& card : machine.cards) document["gpus"].push_back(card_json(card, now));
  return document;
}

std::vector<std::string> data_warnings(const gpu::Machine& machine, Clock::time_point now) {
  std::vector<std::string> warnings = machine.warnings;
  if (!machine.why_no_driver.empty()) warnings.push_back(machine.why_no_driver);
  for (const gpu::Card& card : machine.cards) {
    if (!card.trouble.empty()) warnings.push_back(label(card) + ": " + card.trouble);
    if (is_fresh(card, now)) continue;
    const auto old = age(card, now);
    warnings.push_back(label(card) + std::string(kNoAnswer) +
                       (old ? "data is " + duration_text(*old) + " old" : "there is no data"));
  }
  return warnings;
}

bool tells_age(std::string_view warning) {
  return warning.find(kNoAnswer) != std::string_view::npos;
}

}  // namespace headroom::watch
