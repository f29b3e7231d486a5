#include "headroom/trace/report.h"

#include <nlohmann/json.hpp>

#include "headroom/base/error.h"
#include "headroom/trace/file_writer.h"
#include "headroom/trace/memory_reader.h"

namespace headroom::trace {
namespace {

template <typename Enum>
Enum enum_named(const std::string& text, int count) {
  for (int i = 0; i < count; ++i)
    if (to_string(static_cast<Enum>(i)) == text) return static_cast<Enum>(i);
  throw InputError(expectation("report_from_json", "a known phase or category", text));
}

Phase phase_named(const Json& json) {
  return enum_named<Phase>(json.get<std::string>(), kPhases);
}

std::string key_of(const NamedPart& named) {
  return std::string(named.name) + "_bytes";
}

Json refusal_json(const allocator::OutOfMemory& refusal) {
  return {{"asked_bytes", refusal.requested.count},     {"tried_bytes", refusal.tried.count},
          {"total_bytes", refusal.capacity.count},      {"free_bytes", refusal.free.count},
          {"allocated_bytes", refusal.allocated.count}, {"reserved_bytes", refusal.reserved.count}};
}

allocator::OutOfMemory refusal_from(const Json& json) {
  return {.requested = bytes_from(json.at("asked_bytes")),
          .tried = bytes_from(json.at("tried_bytes")),
          .capacity = bytes_from(json.at("total_bytes")),
          .free = bytes_from(json.at("free_bytes")),
          .limit = {},
          .allocated = bytes_from(json.at("allocated_bytes")),
          .reserved = bytes_from(json.at("reserved_bytes")),
          .free_in_private_pools = {}};
}

}  // namespace

Bytes Parts::total() const {
  Bytes sum;
  for (const NamedPart& named : kParts) sum += this->*named.part;
  return sum;
}

Json to_json(const Peak& peak) {
  return {{"allocated_bytes", peak.allocated.count},
          {"active_bytes", peak.active.count},
          {"requested_bytes", peak.requested.count},
          {"reserved_bytes", peak.reserved.count},
          {"process_bytes", peak.process.count},
          {"phase", to_string(peak.phase)},
          {"step", peak.step}};
}

std::string warning_of(const Report& report) {
  if (report.decided_by_unknown == 0) return {};
  return "The step may have branched on unknown values: it read " +
         std::to_string(report.decided_by_unknown) + " of them, each as zero.";
}

Json figures_json(const Report& report) {
  Json json;
  json["peak"] = to_json(report.peak);
  for (const NamedPart& named : kParts)
    json["at_peak"][key_of(named)] = (report.at_peak.*named.part).count;
  json["by_module"] = Json::array();
  for (const ModulePeak& module : report.by_module)
    json["by_module"].push_back({{"name", module.name}, {"peak_bytes", module.peak.count}});
  json["per_step"] = Json::array();
  for (const StepPeak& step : report.per_step) {
    Json& one = json["per_step"].emplace_back(
        Json{{"step", step.step}, {"peak_allocated_bytes", step.allocated.count}});
    if (step.after) one["after_bytes"] = step.after->count;
  }
  return json;
}

namespace {

void add_observed(Json& json, const Report& report) {
  if (report.by_phase.empty()) return;
  json["script_line_at_peak"] = report.line_at_peak;
  json["by_line"] = json["by_phase"] = Json::array();
  for (const LineBytes& one : report.by_line)
    json["by_line"].push_back({{"line", one.line}, {"bytes", one.bytes.count}});
  for (const PhasePeak& one : report.by_phase)
    json["by_phase"].push_back(
        {{"phase", to_string(one.phase)}, {"peak_allocated_bytes", one.allocated.count}});
}

void read_observed(Report& report, const Json& json) {
  if (!json.contains("by_phase")) return;
  report.line_at_peak = json.at("script_line_at_peak").get<std::string>();
  for (const Json& one : json.at("by_line"))
    report.by_line.push_back({one.at("line").get<std::string>(), bytes_from(one.at("bytes"))});
  for (const Json& one : json.at("by_phase"))
    report.by_phase.push_back(
        {phase_named(one.at("phase")), bytes_from(one.at("peak_allocated_bytes"))});
}

}  // namespace

Json to_json(const Report& report) {
  Json json = figures_json(report);
  json["biggest"] = Json::array();
  for (const LiveTensor& tensor : report.biggest) {
    json["biggest"].push_back({{"bytes", tensor.bytes.count},
                               {"category", to_string(tensor.category)},
                               {"phase", to_string(tensor.phase)},
                               {"step", tensor.step},
                               {"module", tensor.module},
                               {"operation", tensor.operation}});
    if (!tensor.line.empty()) json["biggest"].back()["line"] = tensor.line;
  }
  add_observed(json, report);
  json["fits"] = report.fits();
  json["out_of_memory"] = report.out_of_memory ? refusal_json(*report.out_of_memory) : Json();
  json["values_read_as_zero"] = report.values_read_as_zero;
  json["decided_by_unknown"] = report.decided_by_unknown;
  json["assumptions"] = Json::array();
  for (const Assumption& one : report.assumptions)
    json["assumptions"].push_back({{"what", one.what}, {"where", one.where}, {"count", one.count}});
  json["took_s"] = report.took_s;
  return json;
}

Report report_from_json(const Json& json) try {
  Report report;
  const Json& peak = json.at("peak");
  report.peak = {.allocated = bytes_from(peak.at("allocated_bytes")),
                 .active = bytes_from(peak.at("active_bytes")),
                 .requested = bytes_from(peak.at("requested_bytes")),
                 .reserved = bytes_from(peak.at("reserved_bytes")),
                 .process = bytes_from(peak.at("process_bytes")),
                 .phase = phase_named(peak.at("phase")),
                 .step = peak.at("step").get<std::uint32_t>()};
  for (const NamedPart& named : kParts)
    report.at_peak.*named.part = bytes_from(json.at("at_peak").at(key_of(named)));
  for (const Json& module : json.at("by_module"))
    report.by_module.push_back(
        {module.at("name").get<std::string>(), bytes_from(module.at("peak_bytes"))});
  for (const Json& step : json.at("per_step"))
    report.per_step.push_back(
        {step.at("step").get<std::uint32_t>(), bytes_from(step.at("peak_allocated_bytes")),
         step.contains("after_bytes") ? std::optional(bytes_from(step.at("after_bytes")))
                                      : std::nullopt});
  for (const Json& tensor : json.at("biggest"))
    report.biggest.push_back(
        {.bytes = bytes_from(tensor.at("bytes")),
         .category = enum_named<Category>(tensor.at("category").get<std::string>(), kCategories),
         .phase = phase_named(tensor.at("phase")),
         .step = tensor.at("step").get<std::uint32_t>(),
         .module = tensor.at("module").get<std::string>(),
         .operation = tensor.at("operation").get<std::string>(),
         .line = tensor.value("line", "")});
  read_observed(report, json);
  if (!json.at("out_of_memory").is_null())
    report.out_of_memory = refusal_from(json.at("out_of_memory"));
  report.values_read_as_zero = json.at("values_read_as_zero").get<std::uint64_t>();
  report.decided_by_unknown = json.at("decided_by_unknown").get<std::uint64_t>();
  for (const Json& one : json.value("assumptions", Json::array()))
    report.assumptions.push_back({one.at("what").get<std::string>(),
                                  one.at("where").get<std::string>(),
                                  one.at("count").get<std::uint64_t>()});
  report.took_s = json.at("took_s").get<double>();
  return report;
} catch (const nlohmann::json::exception& error) {
  throw InputError(expectation("report_from_json", "the JSON of a report", error.what()));
}

std::unique_ptr<Reader> read_trace(const Report& report, About about) {
  if (!report.trace)
    throw UsageError(
        expectation("trace", "a report with its events", "one without", "Options::keep_trace"));
  about.format = Format::headroom;
  about.settings = report.allocator;
  if (!report.card.empty()) about.facts.emplace_back("card", report.card);
  if (!about.capacity) {
    about.capacity = report.room;
    about.is_within_capacity = report.is_within_room;
  }
  about.program = "headroom dry run";
  about.torch = allocator::default_version().torch;
  return read_events(report.trace->events, report.trace->names, std::move(about));
}

void write_trace(const Report& report, const std::string& path, const About& about) {
  const auto trace = read_trace(report, about);
  TraceWriter writer(path, trace->about(), trace->names());
  for (Event event; trace->next(event);) writer.append(event);
  writer.close();
}

}  // namespace headroom::trace
