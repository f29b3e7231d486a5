// `headroom trace top`: the tensors alive at the peak, largest first.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "headroom/base/error.h"
#include "headroom/base/json.h"
#include "headroom/base/text.h"
#include "headroom/cli/core/commands/trace.h"
#include "headroom/trace/top.h"

namespace headroom::cli {
namespace {

using trace::Grouping;

struct TraceTopOptions {
  TraceFile file;
  std::string at = "peak", by;
  int rows = 10, depth = 0;
  bool json = false;
};

trace::TopOptions top_options(const TraceTopOptions& options) {
  trace::TopOptions top;
  top.device = options.file.device_number();
  if (options.at == "peak") return top;
  using At = trace::TopOptions::At;
  const auto event = to_integer(options.at);
  if (options.at != "end" && (!event || *event < 0))
    throw UsageError(expectation("--at", "peak, end or the number of an event", options.at));
  top.at = event ? At::event : At::end;
  if (event) top.event = static_cast<std::uint64_t>(*event);
  return top;
}

void check(const TraceTopOptions& options) {
  static const std::vector<std::string> kKnown{"",     "size",      "module",
                                               "line", "operation", "category"};
  if (std::find(kKnown.begin(), kKnown.end(), options.by) == kKnown.end())
    throw UsageError(expectation("--by", "size, module, line, operation or category", options.by));
}

// ---- JSON ----

Json named(std::string_view text) {
  return text.empty() ? Json() : Json(text);
}

Json tensor_json(const trace::Top& top, const trace::Tensor& tensor) {
  return {{"bytes", tensor.bytes.count},
          {"address", tensor.address},
          {"event", tensor.event},
          {"module", named(top.names.text(tensor.module))},
          {"operation", named(top.names.text(tensor.operation))},
          {"line", named(top.names.text(tensor.line))},
          {"category", to_string(tensor.category)},
          {"phase", to_string(tensor.phase)},
          {"step", tensor.step}};
}

Json shares_json(const trace::Top& top, Grouping grouping, const TraceTopOptions& options) {
  Json json = Json::array();
  for (const trace::Share& share : shares(top, grouping, options.depth)) {
    if (json.size() == static_cast<std::size_t>(options.rows)) break;
    json.push_back(
        {{"name", named(share.name)}, {"bytes", share.bytes.count}, {"tensors", share.tensors}});
  }
  return json;
}

Json document(const TraceTopOptions& options, const trace::Top& top) {
  Json json{{"schema", 1},
            {"file", options.file.path},
            {"events", top.noticed.events},
            {"device", or_null(top.noticed.device)},
            {"unknown_frees", top.noticed.unknown_frees},
            {"at", {{"event", top.event}, {"live_bytes", top.live.count}}},
            {"live_tensors", top.tensors.size()},
            {"tensors", Json::array()}};
  for (const trace::Tensor& tensor : top.tensors) {
    if (json["tensors"].size() == static_cast<std::size_t>(options.rows)) break;
    json["tensors"].push_back(tensor_json(top, tensor));
  }
  json["by_module"] = shares_json(top, Grouping::module, options);
  json["by_line"] = shares_json(top, Grouping::line, options);
  json["by_operation"] = shares_json(top, Grouping::operation, options);
  json["by_category"] = shares_json(top, Grouping::category, options);
  return json;
}

// ---- Text ----

// A name of a file is not allowed to move the cursor.
std::string shown(std::string_view name) {
  return without_controls(std::string(name));
}

std::string percent(Bytes part, Bytes whole) {
  return whole > Bytes{0} ? fmt::format("{:.1f} %", 100 * ratio(part, whole)) : "";
}

bool says(const trace::Top& top, Grouping grouping) {
  for (const trace::Tensor& tensor : top.tensors)
    if (grouping == Grouping::module      ? tensor.module != 0
        : grouping == Grouping::operation ? tensor.operation != 0
        : grouping == Grouping::line      ? tensor.line != 0
                                          : tensor.category != trace::Category::unknown)
      return true;
  return false;
}

std::string tensors_table(const TraceTopOptions& options, const trace::Top& top,
                          const Terminal& terminal) {
  const bool modules = says(top, Grouping::module), lines = says(top, Grouping::line),
             operations = says(top, Grouping::operation),
             categories = says(top, Grouping::category);
  const std::string columns = std::string(">size|>of all|>event") + (modules ? "|module" : "") +
                              (lines ? "|line" : "") + (operations ? "|operation" : "") +
                              (categories ? "|category" : "") + "|address or id";
  std::vector<std::vector<std::string>> rows;
  for (const trace::Tensor& tensor : top.tensors) {
    if (rows.size() == static_cast<std::size_t>(options.rows)) break;
    auto& row = rows.emplace_back();
    row = {to_string(tensor.bytes), percent(tensor.bytes, top.live), std::to_string(tensor.event)};
    if (modules) row.push_back(shown(top.names.text(tensor.module)));
    if (lines) row.push_back(shown(top.names.text(tensor.line)));
    if (operations) row.push_back(shown(top.names.text(tensor.operation)));
    if (categories) row.emplace_back(to_string(tensor.category));
    row.push_back(tensor.address < 1'000'000'000 ? std::to_string(tensor.address)
                                                 : fmt::format("{:#x}", tensor.address));
  }
  return table(columns, rows, terminal);
}

std::string shares_table(const TraceTopOptions& options, const trace::Top& top, Grouping grouping,
                         const char* title, const Terminal& terminal) {
  std::vector<std::vector<std::string>> rows;
  for (const trace::Share& share : shares(top, grouping, options.depth)) {
    if (rows.size() == static_cast<std::size_t>(options.rows)) break;
    rows.push_back({to_string(share.bytes), percent(share.bytes, top.live),
                    std::to_string(share.tensors),
                    share.name.empty() ? "(unknown)" : shown(share.name)});
  }
  return table(std::string(">size|>of all|>tensors|") + title, rows, terminal);
}

std::string text(const TraceTopOptions& options, const trace::Top& top, const Terminal& terminal) {
  std::string out = fmt::format(
      "{}: {} live in {} after event {} of {}{}\n", options.file.name(), to_string(top.live),
      counted(static_cast<long long>(top.tensors.size()), "tensor"), top.event, top.noticed.events,
      options.at == "peak" ? ", the peak" : "");
  const auto wanted = [&](const char* by, bool is_said) {
    return options.by == by || (options.by.empty() && is_said);
  };
  if (wanted("size", true)) out += "\n" + tensors_table(options, top, terminal);
  if (wanted("module", says(top, Grouping::module)))
    out += "\n" + shares_table(options, top, Grouping::module, "module", terminal);
  if (wanted("line", says(top, Grouping::line)))
    out += "\n" + shares_table(options, top, Grouping::line, "line", terminal);
  if (wanted("operation", says(top, Grouping::operation)))
    out += "\n" + shares_table(options, top, Grouping::operation, "operation", terminal);
  if (wanted("category", says(top, Grouping::category)))
    out += "\n" + shares_table(options, top, Grouping::category, "category", terminal);
  return out;
}

ExitCode run_trace_top(const TraceTopOptions& options) {
  check(options);
  trace::TopOptions look = top_options(options);
  const auto reader = trace::open_trace(options.file.path);
  TraceProgress progress(options.file.name());
  look.progress = [&](const trace::Reader& at) { progress.show(at); };
  const trace::Top top = top_of(*reader, look);
  progress.clear();
  warn_of(options.file, *reader, top.noticed);
  print(options.json ? to_line(document(options, top)) + "\n"
                     : text(options, top, standard_output()));
  return kOk;
}

}  // namespace

void add_trace_top(Registry& registry, CLI::App* group) {
  auto [command, options] = registry.add(
      &run_trace_top, "top", "List the largest live tensors at the peak, by module and operator",
      "  headroom trace top snapshot.pickle\n"
      "  headroom trace top run.hrtrace --by module --depth 2\n"
      "  headroom trace top run.hrtrace --at end --rows 50\n"
      "  headroom trace top run.hrtrace --json | jq '.tensors[0]'\n\n"
      "Sizes are as requested, without rounding and cached blocks.",
      group);
  options->file.add_to(command);
  command->add_option("--at", options->at, "Moment: peak, end, or the number of an event")
      ->capture_default_str();
  command->add_option(
      "--by", options->by,
      "One table only: size, module, line, operation or category (default: all that are known)");
  command->add_option("--rows", options->rows, "Rows of each table")
      ->capture_default_str()
      ->check(CLI::Range(1, 1'000'000));
  command->add_option("--depth", options->depth, "Keep this many parts of module paths (0: all)")
      ->capture_default_str()
      ->check(CLI::Range(0, 100));
  command->add_flag("--json", options->json, "Print one JSON document (sizes in bytes)");
}

}  // namespace headroom::cli
