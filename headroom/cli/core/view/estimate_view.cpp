#include "headroom/cli/core/view/estimate_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "headroom/base/bytes.h"
#include "headroom/base/text.h"
#include "headroom/cli/core/view/advice_view.h"
#include "headroom/machine/cards_to_fill.h"
#include "headroom/model/run_settings.h"

namespace headroom::cli {
namespace {

constexpr std::size_t kModules = 6;
constexpr double kSmall = 0.005;  // smaller shares of the whole count as "others"

// ---- Model and settings ----

std::string count_text(long long count) {
  const auto n = static_cast<double>(count);
  if (n >= 1e9) return fmt::format("{:.2f} B", n / 1e9);
  if (n >= 1e6) return fmt::format("{:.1f} M", n / 1e6);
  return n >= 1e3 ? fmt::format("{:.1f} k", n / 1e3) : std::to_string(count);
}

// Defaults for keys that a config file leaves out; for a model by name they are not shown.
std::string defaults_text(const Answer& answer, const Terminal& terminal, int width) {
  if (answer.defaulted.empty() || !answer.model.ends_with(".json")) return "";
  return wrapped(join(answer.defaulted, ", "),
                 terminal.paint("transformers' defaults: ", Colour::dim), "  ", width);
}

// Keys that another line shows, or that appear only with another setting.
bool is_said_elsewhere(const std::string& key) {
  static constexpr std::array<std::string_view, 10> kElsewhere{
      "task",  "batch", "seq",       "target_seq",     "image",
      "dtype", "mode",  "optimizer", "optimizer_impl", "attention"};
  return std::find(kElsewhere.begin(), kElsewhere.end(), key) != kElsewhere.end();
}

std::string value_text(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return to_line(value);
  std::vector<std::string> words;
  for (const Json& word : value) words.push_back(word.get<std::string>());
  return join(words, ",");
}

std::string rows_text(const model::Settings& settings) {
  std::string text = fmt::format("batch {}", settings.batch);
  if (settings.seq) text += fmt::format(" x {} tokens", *settings.seq);
  if (settings.target_seq) text += fmt::format(" to {}", *settings.target_seq);
  if (settings.image) text += fmt::format(" of {} pixels", *settings.image);
  return text;
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

std::string verdict(const CardAnswer& on, const Terminal& terminal) {
  if (on.until_it_failed)
    return terminal.paint("failed", Colour::red) + ", having used at most " +
           to_string(on.peak.process);
  if (on.fits)
    return terminal.paint("fits", Colour::green) + ", " + to_string(on.spare) + " to spare";
  const std::string no = terminal.paint("does not fit", Colour::red) + ": ";
  if (on.spare.count >= 0) return no + "no free block is large enough";
  return no + to_string(Bytes{0} - on.spare) + " too much";
}

std::string card_line(const CardAnswer* on, const Terminal& terminal) {
  if (on == nullptr) return "No card to fit into: name one, --gpus \"RTX 4090\".\n";
  const gpu::SimulatedCard& card = on->card;
  std::string text = card.name + ", " + to_string(card.total);
  if (machine::usable(card) < card.total)
    text += " (" + to_string(machine::usable(card)) + " usable)";
  return in_lines(text + ": " + verdict(*on, terminal), "", "  ", terminal);
}

// False if the chip's profile has no context size.
bool has_context(const trace::Peak& peak) {
  return peak.process > peak.reserved;
}

std::string bar_of(const Answer& answer, const Terminal& terminal) {
  const int width = std::clamp(terminal.width, 20, 100);
  const CardAnswer* on = answer.tightest();
  const Bytes room = on != nullptr ? machine::usable(on->card) : Bytes{0};
  const double whole = number(std::max(room, answer.report.peak.process));
  if (whole <= 0) return "";
  std::string text = terminal.stacked_bar(bar_parts(answer.report), whole, width) + "\n";
  if (answer.does_not_fit()) {
    const auto before = static_cast<std::size_t>(std::lround(number(room) / whole * width));
    text += std::string(before, ' ') + terminal.paint(terminal.unicode ? "↑" : "^", Colour::red) +
            " here the card ends\n";
  }
  return text;
}

std::string peak_sentence(const trace::Peak& peak) {
  std::string text = "Peak in " + std::string(to_string(peak.phase));
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
                 "By the rule of thumb " + to_string(rule.total()) + ": ", "  ", width);
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

std::string verdict_text(const CardAnswer& card) {
  return std::string(trim(card_line(&card, Terminal{})));
}

std::string model_text(const Answer& answer, const Terminal& terminal) {
  return terminal.paint(answer.model, Colour::bold) + ", " + parameters_text(answer);
}

std::string parameters_text(const Answer& answer) {
  const long long all = answer.parameters, trained = answer.trainable_parameters;
  std::string text = count_text(all) + " parameters";
  const double percent = 100.0 * static_cast<double>(trained) / static_cast<double>(all);
  if (trained > 0 && trained < all)
    text += fmt::format(", {} of them trained ({} %)", count_text(trained),
                        percent < 0.01 ? "< 0.01" : fmt::format("{:.2g}", percent));
  return text + "\n";
}

// The picture shows the tightest of several cards; this table has one row per kind of card.
std::string devices_text(const std::vector<CardAnswer>& cards, const Terminal& terminal) {
  if (cards.size() < 2) return "";
  std::vector<std::pair<CardAnswer, int>> kinds;
  for (const CardAnswer& on : cards) {
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
                    to_string(on.card.total), to_string(on.peak.process), verdict(on, terminal)});
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

std::string settings_text(const model::Settings& settings) {
  static const Json usual = model::to_json(model::Settings{});
  std::vector<std::string> parts;
  if (settings.task) parts.emplace_back(to_string(*settings.task));
  parts.emplace_back(to_string(settings.mode));
  parts.push_back(rows_text(settings));
  parts.emplace_back(to_string(settings.dtype));
  if (settings.mode == model::Mode::train)
    parts.push_back(fmt::format("{} {}", to_string(settings.form), to_string(settings.optimizer)));
  if (settings.task != model::Task::image_classification)
    parts.emplace_back(to_string(settings.attention));
  const Json all = model::to_json(settings);
  for (const auto& [key, value] : all.items()) {
    if (is_said_elsewhere(key) || value == usual.at(key)) continue;
    std::string name = key;
    std::replace(name.begin(), name.end(), '_', '-');
    parts.push_back(value == Json(true) ? name : name + " " + value_text(value));
  }
  return join(parts, ", ");
}

std::string notes_text(const std::vector<std::string>& notes, const Terminal& terminal) {
  const int width = std::clamp(terminal.width, 20, 100);
  std::string text;
  for (const std::string& note : notes)
    text += wrapped(note, terminal.paint("note: ", Colour::dim), "  ", width);
  return text;
}

std::string estimate_text(const Answer& answer, const Terminal& terminal) {
  const int width = std::clamp(terminal.width, 20, 100);
  const CardAnswer* on = answer.tightest();
  const gpu::SimulatedCard* card = on != nullptr ? &on->card : nullptr;
  std::string text = model_text(answer, terminal);
  text += wrapped(settings_text(answer.settings), "", "", width);
  text += defaults_text(answer, terminal, width) + notes_text(answer.notes, terminal);
  text += "\n" + card_text(answer, terminal);
  if (answer.rule) text += rule_text(*answer.rule, width);
  text += devices_text(answer.cards, terminal) + modules_text(answer.report.by_module);
  text += advice_text(answer.advice, card, answer.does_not_fit(), !answer.by_formula, terminal);
  if (answer.techniques) text += techniques_text(*answer.techniques, card, terminal);
  const char* const how =
      answer.by_formula ? "By formula in" : "Dry run of the model's own code in";
  return text +
         terminal.paint(fmt::format("\n{} {:.2f} s\n", how, answer.report.took_s), Colour::dim);
}

}  // namespace headroom::cli
