#include "headroom/cli/core/view/estimate_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "headroom/answer/words.h"
#include "headroom/base/bytes.h"
#include "headroom/base/text.h"
#include "headroom/cli/core/view/advice_view.h"

namespace headroom::cli {
namespace {

using answer::Answer;
using answer::Method;
using answer::OnCard;

constexpr std::size_t kModules = 6;
constexpr double kSmall = 0.005;  // smaller shares of the whole count as "others"

// ---- Model and settings ----

// Defaults for keys that a config file leaves out; for a model by name they are not shown.
std::string defaults_text(const Answer& answer, const Terminal& terminal, int width) {
  if (answer.defaulted.empty() || !answer.model.ends_with(".json")) return "";
  return wrapped(join(answer.defaulted, ", "),
                 terminal.paint("transformers' defaults: ", Colour::dim), "  ", width);
}

// ---- Parts ----

struct PartOfPeak {
  Bytes trace::Parts::*part;
  const char* name;
  char letter;
  Colour colour;
};
constexpr std::array<PartOfPeak, 9> kPartsOfPeak{{
    {&trace::Parts::parameters, "parameters", 'P', Colour::blue},
    {&trace::Parts::gradients, "gradients", 'G', Colour::green},
    {&trace::Parts::optimizer, "optimizer", 'O', Colour::yellow},
    {&trace::Parts::activations, "activations", 'A', Colour::magenta},
    {&trace::Parts::temporaries, "temporaries", 'T', Colour::red},
    {&trace::Parts::buffers, "buffers", 'B', Colour::cyan},
    {&trace::Parts::inputs, "inputs", 'I', Colour::cyan},
    {&trace::Parts::workspace, "workspaces", 'W', Colour::dim},
    {&trace::Parts::rounding, "rounding", 'R', Colour::dim},
}};

double number(Bytes bytes) {
  return static_cast<double>(bytes.count);
}

bool is_small(Bytes amount, const trace::Report& report) {
  return number(amount) < kSmall * number(report.peak.process);
}

std::vector<Terminal::Part> bar_parts(const trace::Report& report) {
  std::vector<Terminal::Part> parts;
  Bytes small;
  for (const PartOfPeak& part : kPartsOfPeak) {
    const Bytes amount = report.at_peak.*part.part;
    if (is_small(amount, report))
      small += amount;
    else
      parts.push_back({part.letter, part.colour, number(amount)});
  }
  const trace::Peak& peak = report.peak;
  parts.push_back({'-', Colour::dim, number(small + peak.reserved - peak.allocated)});
  parts.push_back({'C', Colour::dim, number(peak.process - peak.reserved)});
  return parts;
}

std::string verdict_text(const OnCard& on, const Terminal& terminal) {
  const answer::Verdict verdict = answer::verdict_of(on);
  return terminal.paint(verdict.word, verdict.is_good ? Colour::green : Colour::red) + verdict.rest;
}

std::string card_line(const OnCard* on, const Terminal& terminal) {
  if (on == nullptr) return "No card to fit into: name one, --gpus \"RTX 4090\".\n";
  return in_lines(answer::card_words(on->card) + ": " + verdict_text(*on, terminal), "", "  ",
                  terminal);
}

// False if the chip's profile has no context size.
bool has_context(const trace::Peak& peak) {
  return peak.process > peak.reserved;
}

std::string bar_of(const Answer& answer, const Terminal& terminal) {
  const int width = std::clamp(terminal.width, 20, 100);
  const OnCard* on = answer.tightest();
  const Bytes room = on != nullptr ? gpu::usable(on->card) : Bytes{0};
  const double whole = number(std::max(room, answer.report.peak.process));
  if (whole <= 0) return "";
  std::string text = terminal.stacked_bar(bar_parts(answer.report), whole, width) + "\n";
  if (answer.does_not_fit()) {
    const auto before = static_cast<std::size_t>(std::lround(number(room) / whole * width));
    text += fmt::format("{}{} here the card ends\n", std::string(before, ' '),
                        terminal.paint(terminal.unicode ? "↑" : "^", Colour::red));
  }
  return text;
}

std::string peak_sentence(const trace::Peak& peak) {
  std::string text = fmt::format("Peak in {}", to_string(peak.phase));
  if (peak.step > 0) text += fmt::format(" of step {}", peak.step);
  return text + "\n";
}

std::string parts_table(const Answer& answer, const Terminal& terminal) {
  const trace::Peak& peak = answer.report.peak;
  std::string text;
  Bytes small;
  const auto line = [&](const std::string& key, const std::string& name, Bytes amount,
                        const std::string& remark) {
    const double share = peak.process.count > 0 ? 100 * number(amount) / number(peak.process) : 0;
    const std::string figures =
        fmt::format("  {} {:<12} {:>11} {:>4.0f} %", key, name, to_string(amount), share);
    if (remark.empty())
      text += figures + "\n";
    else
      text += in_lines(remark, figures + "  ", std::string(cells(figures) + 2, ' '), terminal);
  };
  for (const PartOfPeak& part : kPartsOfPeak) {
    const Bytes amount = answer.report.at_peak.*part.part;
    if (is_small(amount, answer.report))
      small += amount;
    else
      line(terminal.key_of({part.letter, part.colour, 0}), part.name, amount, "");
  }
  if (small.count > 0) line(" ", "others", small, "");
  line(" ", "allocated", peak.allocated, "");
  const bool unknown = !has_context(peak) && !answer.cards.empty();
  line("-", "reserved", peak.reserved,
       unknown ? "with the cache; a CUDA context comes on top"
               : "with what the allocator keeps in its cache");
  if (has_context(peak))
    line("C", "process", peak.process, "with the CUDA context: what nvidia-smi shows");
  return text;
}

std::string rule_text(const plan::QuickEstimate& rule, int width) {
  return wrapped(rule.why + ", and activations",
                 fmt::format("By the rule of thumb {}: ", to_string(rule.total())), "  ", width);
}

// ---- By module ----

// "model.layers.7.mlp" has the pattern "model.layers.*.mlp".
std::string pattern_of(const std::string& name) {
  std::vector<std::string> parts;
  for (const std::string_view part : split(name, '.')) {
    const bool number = !part.empty() && std::all_of(part.begin(), part.end(), [](char c) {
      return std::isdigit(static_cast<unsigned char>(c)) != 0;
    });
    parts.emplace_back(number ? "*" : part);
  }
  return join(parts, ".");
}

struct Alike {
  std::string pattern;
  Bytes most, least;
  int count = 0;
};

// The largest kinds of modules; names that differ only in numbers are one kind.
std::vector<Alike> kinds_of(const std::vector<trace::ModulePeak>& by_module) {
  std::vector<Alike> kinds;
  for (const trace::ModulePeak& module : by_module) {
    if (module.name.empty()) continue;
    const std::string pattern = pattern_of(module.name);
    auto same = std::find_if(kinds.begin(), kinds.end(),
                             [&](const Alike& kind) { return kind.pattern == pattern; });
    if (same == kinds.end()) same = kinds.insert(kinds.end(), {pattern, module.peak, module.peak});
    same->most = std::max(same->most, module.peak);
    same->least = std::min(same->least, module.peak);
    ++same->count;
  }
  return kinds;
}

}  // namespace

std::string model_text(const Answer& answer, const Terminal& terminal) {
  return fmt::format("{}, {}\n", terminal.paint(answer.model, Colour::bold),
                     answer::parameters_words(answer));
}

// The picture shows the tightest of several cards; this table has one row per kind of card.
std::string devices_text(const std::vector<OnCard>& cards, const Terminal& terminal) {
  if (cards.size() < 2) return "";
  std::vector<std::pair<OnCard, int>> kinds;
  for (const OnCard& on : cards) {
    const auto same = std::find_if(kinds.begin(), kinds.end(),
                                   [&](const auto& kind) { return kind.first == on; });
    if (same == kinds.end())
      kinds.emplace_back(on, 1);
    else
      ++same->second;
  }
  std::vector<std::vector<std::string>> rows;
  std::vector<std::string> without_context;
  for (const auto& [on, count] : kinds) {
    const std::string& name = on.card.name;
    if (!has_context(on.peak)) without_context.push_back(name);
    rows.push_back({count > 1 ? fmt::format("{} x {}", count, name) : name,
                    to_string(on.card.total), to_string(on.peak.process),
                    verdict_text(on, terminal)});
  }
  std::string text = "\nOn each card\n" +
                     table({{"card"}, {"memory", true}, {"needs", true}, {""}}, rows, terminal);
  if (!without_context.empty() && without_context.size() < kinds.size())
    text += in_lines("Without the CUDA context, whose size on that card is unknown: " +
                         join(without_context, ", "),
                     "", "  ", terminal);
  return text;
}

std::string card_text(const Answer& answer, const Terminal& terminal) {
  return card_line(answer.tightest(), terminal) + bar_of(answer, terminal) + "\n" +
         peak_sentence(answer.report.peak) + parts_table(answer, terminal);
}

std::string modules_text(const std::vector<trace::ModulePeak>& by_module) {
  const std::vector<Alike> kinds = kinds_of(by_module);
  if (kinds.empty()) return "";
  std::string text = "\nModules that hold the most at one time\n";
  for (std::size_t i = 0; i < std::min(kModules, kinds.size()); ++i) {
    const Alike& kind = kinds[i];
    const std::string most = to_string(kind.most);
    text += fmt::format("  {:>11}  {}", most, kind.pattern);
    const bool are_alike = to_string(kind.least) == most;
    if (kind.count > 1)
      text += fmt::format("  ({} {})", are_alike ? "each of" : "the largest of", kind.count);
    text += "\n";
  }
  return text;
}

std::string notes_text(const std::vector<std::string>& notes, const Terminal& terminal) {
  const int width = std::clamp(terminal.width, 20, 100);
  std::string text;
  for (const std::string& note : notes)
    text += wrapped(note, terminal.paint("note: ", Colour::dim), "  ", width);
  return text;
}

std::string estimate_text(const Answer& answer, const Terminal& terminal,
                          const std::string& tried) {
  const int width = std::clamp(terminal.width, 20, 100);
  const OnCard* on = answer.tightest();
  const gpu::SimulatedCard* card = on != nullptr ? &on->card : nullptr;
  std::string text = model_text(answer, terminal);
  if (answer.settings) text += wrapped(answer::settings_words(*answer.settings), "", "", width);
  text += defaults_text(answer, terminal, width) + notes_text(answer.notes, terminal);
  text += "\n" + card_text(answer, terminal);
  if (answer.rule) text += rule_text(*answer.rule, width);
  text += devices_text(answer.cards, terminal) + modules_text(answer.report.by_module);
  text += advice_text(answer.advice, card, answer.does_not_fit(), answer.method != Method::formula,
                      terminal);
  text += tried;
  if (answer.techniques) text += techniques_text(*answer.techniques, card, terminal);
  const char* const how =
      answer.method == Method::formula ? "By formula in" : "Dry run of the model's own code in";
  return text +
         terminal.paint(fmt::format("\n{} {:.2f} s\n", how, answer.report.took_s), Colour::dim);
}

ExitCode print_answer(const Answer& answer, bool as_json) {
  print(as_json ? to_line(to_json(answer)) + "\n" : estimate_text(answer, standard_output()));
  return answer.does_not_fit() ? kDoesNotFit : kOk;
}

}  // namespace headroom::cli
