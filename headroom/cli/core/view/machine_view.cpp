#include "headroom/cli/core/view/machine_view.h"

#include <fmt/format.h>

#include <algorithm>

#include "headroom/base/text.h"
#include "headroom/gpu/catalogue.h"
#include "headroom/gpu/select.h"

namespace headroom::cli {
namespace {

using gpu::Card;
using gpu::GpuProcess;

std::string brief_pci(const Card& card) {
  // The domain is 0 on nearly every machine; "01:00.0" is the familiar form.
  const bool usual = card.pci.starts_with("00000000:");
  return usual ? card.pci.substr(9) : card.pci;
}

std::string program(const std::string& command) {
  const auto words = split(command, ' ');
  const std::string_view first = words[0].substr(words[0].rfind('/') + 1);
  // "python train.py" says more than "python".
  const bool interpreter = first.starts_with("python") || first == "torchrun" || first == "bash";
  if (!interpreter) return std::string(first);
  for (std::size_t i = 1; i < words.size(); ++i)
    if (!words[i].empty() && words[i][0] != '-')
      return fmt::format("{} {}", first, words[i].substr(words[i].rfind('/') + 1));
  return std::string(first);
}

std::string holder_text(const GpuProcess& process) {
  if (!process.pid)
    return (process.used ? to_string(*process.used) + " " : "") + std::string("other namespace");
  std::string text = fmt::format("{} {} {}", process.user.value_or("?"), *process.pid,
                                 program(process.command.value_or("?")));
  if (process.used) text += " " + to_string(*process.used);
  if (process.started)
    text += ", " + duration_text(std::max(
                       Seconds(0), Seconds(std::chrono::system_clock::now() - *process.started)));
  return text;
}

std::string holders_text(const Card& card) {
  if (!card.processes) return "processes unknown";
  if (card.processes->empty()) return "no processes";
  auto processes = *card.processes;
  std::stable_sort(processes.begin(), processes.end(), [](const auto& a, const auto& b) {
    return a.used.value_or(Bytes{0}) > b.used.value_or(Bytes{0});
  });
  std::string text = holder_text(processes[0]);
  if (processes.size() > 1) text += fmt::format(" (+{} more)", processes.size() - 1);
  return text;
}

// Lines have 80 cells. On a narrower terminal the bar shrinks first, then the name.
constexpr int kLine = 80, kBar = 22, kShortestBar = 8, kName = 18, kShortestName = 10;

int bar_width(const Terminal& terminal) {
  return std::clamp(kBar - (kLine - terminal.width), kShortestBar, kBar);
}

std::size_t name_width(const Terminal& terminal) {
  const int left_over = kLine - terminal.width - (kBar - bar_width(terminal));
  return static_cast<std::size_t>(std::clamp(kName - left_over, kShortestName, kName));
}

std::string memory_line(const Card& card, const Terminal& terminal) {
  if (!card.memory) return terminal.paint("memory unknown", Colour::yellow);
  const auto& memory = *card.memory;
  const Bytes taken = memory.total - memory.free;
  const auto usable = usable_now(card);
  return terminal.bar(ratio(taken, memory.total), bar_width(terminal)) +
         fmt::format(" {:>6.2f}/{:.2f} GiB  ", taken.gib(), memory.total.gib()) +
         (usable ? fmt::format("{:>9} usable", to_string(*usable)) : "    ? usable");
}

std::string gauges_text(const Card& card) {
  std::string text;
  if (card.utilization) text += fmt::format("  {:>3} %", *card.utilization);
  if (card.temperature_c) text += fmt::format("  {} C", *card.temperature_c);
  return text;
}

std::string card_picture(const Card& card, const Terminal& terminal) {
  const std::size_t wide = name_width(terminal);
  std::string name = fitted(brief_name(card), wide, terminal);
  name += std::string(wide - cells(name), ' ');
  const std::string number = card.slice ? "  " : fmt::format("{:>2}", card.index);
  std::string first = fmt::format(" {} {} {}", terminal.paint(number, Colour::bold), name,
                                  memory_line(card, terminal));
  const auto old = age(card, Clock::now());
  const bool stale = !old || *old > gpu::kFreshFor;
  if (stale) {
    first += terminal.paint(old ? "  stale " + duration_text(*old) : "  no data", Colour::yellow);
  } else if (terminal.width >= 92) {
    first += gauges_text(card);
  }
  std::string second = "    ";
  if (!card.pci.empty()) second += brief_pci(card) + " ";
  second += short_text(card.uuid) + "  ";
  second += holders_text(card);
  const auto width = static_cast<std::size_t>(std::max(40, terminal.width - 1));
  return fmt::format("{}\n{}\n", first,
                     terminal.paint(fitted(second, width, terminal), Colour::dim));
}

std::string note(const char* mark, const std::string& text, Colour colour,
                 const Terminal& terminal) {
  return wrapped(text, " " + terminal.paint(mark, colour) + " ", "   ", terminal.width - 1);
}

}  // namespace

std::string brief_name(const Card& card) {
  std::string name = card.name;
  for (const std::string_view word : {"NVIDIA ", "GeForce ", "Simulated "})
    if (const auto at = name.find(word); at != std::string::npos) name.erase(at, word.size());
  return name;
}

std::string machine_title(const gpu::Machine& machine, const Terminal& terminal) {
  const auto cards = std::count_if(machine.cards.begin(), machine.cards.end(),
                                   [](const Card& card) { return !card.slice; });
  std::string title = terminal.paint("Headroom", Colour::bold);
  const std::string between = std::string(" ") + terminal.dash() + " ";
  title += between + counted(cards, machine.simulated ? "simulated GPU" : "GPU");
  if (machine.driver) title += between + "driver " + *machine.driver;
  if (machine.cuda_driver)
    title += fmt::format(" (CUDA {})", gpu::cuda_version(*machine.cuda_driver));
  Bytes free{0}, total{0};
  long long unknown = 0;
  for (const Card& card : machine.cards) {
    if (!card.memory && !card.slice) ++unknown;
    if (!card.memory || card.slice) continue;
    free += card.memory->free;
    total += card.memory->total;
  }
  if (total > Bytes{0})
    title += fmt::format("{}{} of {} free", between, to_string(free), to_string(total));
  if (unknown > 0) title += fmt::format("{}{} unknown", between, unknown);
  return terminal.is_terminal ? wrapped(title, "", "  ", terminal.width - 1) : title + "\n";
}

std::string machine_picture(const gpu::Machine& machine, const Terminal& terminal) {
  std::string out = machine_title(machine, terminal);
  if (!machine.cards.empty()) out += "\n";
  for (const Card& card : machine.cards) out += card_picture(card, terminal);
  return out;
}

std::string notes(const machine::Look& look, std::size_t most_warnings, const Terminal& terminal) {
  std::string out;
  const std::size_t shown = std::min(most_warnings, look.warnings.size());
  for (std::size_t i = 0; i < shown; ++i)
    out += note(terminal.warning(), look.warnings[i], Colour::yellow, terminal);
  if (shown < look.warnings.size())
    out += fmt::format("   (+{} more: headroom gpus)\n", look.warnings.size() - shown);
  for (const std::string& line : look.advice.lines)
    out += note(terminal.bullet(), line, Colour::blue, terminal);
  return out.empty() ? out : "\n" + out;
}

}  // namespace headroom::cli
