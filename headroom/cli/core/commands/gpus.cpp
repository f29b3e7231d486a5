// `headroom gpus`: every card with every figure, as a table or as JSON.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "headroom/cli/core/look.h"
#include "headroom/cli/core/registry.h"
#include "headroom/cli/core/view/machine_view.h"
#include "headroom/watch/gpus_json.h"

namespace headroom::cli {
namespace {

struct GpusOptions {
  std::string gpus;
  bool json = false;
  bool processes = false;
};

template <typename T>
std::string or_unknown(const std::optional<T>& value, const char* unit) {
  return value ? fmt::format("{}{}", *value, unit) : "?";
}

std::string size_or_unknown(std::optional<Bytes> size) {
  return size ? to_string(*size) : "?";
}

std::string usable_text(const gpu::Card& card) {
  const auto old = age(card, Clock::now());
  const bool stale = !old || *old > gpu::kFreshFor;
  return stale ? "stale" : size_or_unknown(usable_now(card));
}

// A narrow terminal shows fewer columns; `--json` and a wider one show all.
bool has_room(const Terminal& terminal) {
  return !terminal.is_terminal || terminal.width >= 125;
}

// Below 74 columns used memory and load are left out too: the picture of the machine shows them.
bool is_very_narrow(const Terminal& terminal) {
  return terminal.is_terminal && terminal.width < 74;
}

std::vector<std::string> very_narrow_row(const gpu::Card& card, const Terminal& terminal) {
  return {card.slice ? "" : std::to_string(card.index), fitted(brief_name(card), 18, terminal),
          card.memory ? to_string(card.memory->total) : "?",
          card.memory ? to_string(card.memory->free) : "?", usable_text(card)};
}

std::vector<std::string> narrow_row(const gpu::Card& card, const Terminal& terminal) {
  const auto part = [&](Bytes gpu::CardMemory::*member) {
    return card.memory ? to_string((*card.memory).*member) : std::string("?");
  };
  return {card.slice ? "" : std::to_string(card.index),
          fitted(brief_name(card), 18, terminal),
          part(&gpu::CardMemory::total),
          part(&gpu::CardMemory::used),
          part(&gpu::CardMemory::free),
          usable_text(card),
          or_unknown(card.utilization, " %")};
}

std::vector<std::string> row_of(const gpu::Card& card) {
  const auto part = [&](Bytes gpu::CardMemory::*member) {
    return card.memory ? to_string((*card.memory).*member) : std::string("?");
  };
  return {card.slice ? "" : std::to_string(card.index),
          card.name,
          card.pci.empty() ? "-" : card.pci,
          short_text(card.uuid),
          part(&gpu::CardMemory::total),
          part(&gpu::CardMemory::used),
          card.memory ? size_or_unknown(card.memory->reserved) : "?",
          part(&gpu::CardMemory::free),
          usable_text(card),
          or_unknown(card.utilization, " %"),
          or_unknown(card.temperature_c, " C"),
          card.power_w ? fmt::format("{:.0f} W", *card.power_w) : "?"};
}

std::string cards_table(const gpu::Machine& machine, const Terminal& terminal) {
  const bool wide = has_room(terminal);
  std::vector<std::vector<std::string>> rows;
  if (is_very_narrow(terminal)) {
    for (const gpu::Card& card : machine.cards) rows.push_back(very_narrow_row(card, terminal));
    return table({{"GPU", true}, {"name"}, {"total", true}, {"free", true}, {"usable", true}}, rows,
                 terminal);
  }
  for (const gpu::Card& card : machine.cards)
    rows.push_back(wide ? row_of(card) : narrow_row(card, terminal));
  if (!wide)
    return table({{"GPU", true},
                  {"name"},
                  {"total", true},
                  {"used", true},
                  {"free", true},
                  {"usable", true},
                  {"util", true}},
                 rows, terminal);
  return table({{"GPU", true},
                {"name"},
                {"PCI"},
                {"UUID"},
                {"total", true},
                {"used", true},
                {"driver", true},
                {"free", true},
                {"usable", true},
                {"util", true},
                {"temp", true},
                {"power", true}},
               rows, terminal);
}

std::string process_table(const gpu::Machine& machine, const Terminal& terminal) {
  std::vector<std::vector<std::string>> rows;
  for (const gpu::Card& card : machine.cards) {
    for (const auto& process : card.processes.value_or(std::vector<gpu::GpuProcess>{})) {
      const auto since = [&] {
        return duration_text(std::chrono::system_clock::now() - *process.started);
      };
      rows.push_back(
          {card.slice ? short_text(card.uuid) : std::to_string(card.index),
           process.pid ? std::to_string(*process.pid) : "?", process.user.value_or("?"),
           size_or_unknown(process.used), process.started ? since() : "?", to_string(process.kind),
           fitted(process.command.value_or("?"), has_room(terminal) ? 60 : 24, terminal)});
    }
  }
  if (rows.empty()) return "\nno processes\n";
  return "\n" + table({{"GPU", true},
                       {"PID", true},
                       {"user"},
                       {"used", true},
                       {"age", true},
                       {"kind"},
                       {"command"}},
                      rows, terminal);
}

ExitCode run_gpus(const GpusOptions& options) {
  const Look look = look_at_machine(options.gpus);
  if (options.json) {
    print(to_line(watch::gpus_document(look.machine, {look.warnings, look.advice.lines})) + "\n");
    return kOk;
  }
  const Terminal terminal = standard_output();
  std::string out = machine_title(look.machine, terminal);
  if (!look.machine.cards.empty()) out += "\n" + cards_table(look.machine, terminal);
  if (options.processes) out += process_table(look.machine, terminal);
  print(out + notes(look, look.warnings.size(), terminal));
  return kOk;
}

}  // namespace

void add_gpus(Registry& registry) {
  auto options = std::make_shared<GpusOptions>();
  CLI::App* command = registry.add("gpus", "Show the memory, load and users of each GPU",
                                   "  headroom gpus\n"
                                   "  headroom gpus --processes\n"
                                   "  headroom gpus --json | jq '.gpus[].usable_bytes'\n"
                                   "  headroom gpus --gpus sim:8x31.36GiB");
  add_gpus_option(command, options->gpus);
  command->add_flag("--json", options->json, "Print one JSON document (sizes in bytes)");
  command->add_flag("--processes", options->processes, "List the processes on each card");
  registry.run(command, options, &run_gpus);
}

}  // namespace headroom::cli
