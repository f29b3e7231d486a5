// `headroom gpus`: every card with every figure, as a table or as JSON.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "headroom/cli/core/gpus_option.h"
#include "headroom/cli/core/registry.h"
#include "headroom/cli/core/view/machine_view.h"
#include "headroom/machine/look.h"
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

// A narrow terminal shows fewer columns; `--json` and a wider one show all.
bool has_room(const Terminal& terminal) {
  return !terminal.is_terminal || terminal.width >= 125;
}

std::string cards_table(const gpu::Machine& machine, const Terminal& terminal) {
  const bool wide = has_room(terminal);
  // Below 74 columns used memory and load are left out too: the picture of the machine shows them.
  const bool medium = wide || terminal.width >= 74;
  std::vector<std::vector<std::string>> rows;
  for (const gpu::Card& card : machine.cards) {
    auto& row = rows.emplace_back();
    const auto add = [&](bool is_shown, std::string text) {
      if (is_shown) row.push_back(std::move(text));
    };
    const auto part = [&](Bytes gpu::CardMemory::*member) {
      return card.memory ? to_string((*card.memory).*member) : std::string("?");
    };
    add(true, card.slice ? "" : std::to_string(card.index));
    add(true, wide ? card.name : fitted(brief_name(card), 18, terminal));
    add(wide, card.pci.empty() ? "-" : card.pci);
    add(wide, short_text(card.uuid));
    add(true, part(&gpu::CardMemory::total));
    add(medium, part(&gpu::CardMemory::used));
    add(wide, card.memory ? size_or_unknown(card.memory->reserved) : "?");
    add(true, part(&gpu::CardMemory::free));
    add(true, is_fresh(card, Clock::now()) ? size_or_unknown(usable_now(card)) : "stale");
    add(medium, or_unknown(card.utilization, " %"));
    add(wide, or_unknown(card.temperature_c, " C"));
    add(wide, card.power_w ? fmt::format("{:.0f} W", *card.power_w) : "?");
  }
  return table(wide     ? ">GPU|name|PCI|UUID|>total|>used|>driver|>free|>usable|>util|>temp|>power"
               : medium ? ">GPU|name|>total|>used|>free|>usable|>util"
                        : ">GPU|name|>total|>free|>usable",
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
  return "\n" + table(">GPU|>PID|user|>used|>age|kind|command", rows, terminal);
}

ExitCode run_gpus(const GpusOptions& options) {
  const machine::Look look = machine::look_at_machine(options.gpus);
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
  auto [command, options] =
      registry.add(&run_gpus, "gpus", "Show the memory, load and users of each GPU",
                   "  headroom gpus\n"
                   "  headroom gpus --processes\n"
                   "  headroom gpus --json | jq '.gpus[].usable_bytes'\n"
                   "  headroom gpus --gpus sim:8x31.36GiB");
  add_gpus_option(command, options->gpus);
  command->add_flag("--json", options->json, "Print one JSON document (sizes in bytes)");
  command->add_flag("--processes", options->processes, "List the processes on each card");
}

}  // namespace headroom::cli
