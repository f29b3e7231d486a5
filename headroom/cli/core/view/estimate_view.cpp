#include "headroom/cli/core/view/estimate_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "headroom/base/bytes.h"
#include "headroom/base/text.h"
#include "headroom/cli/core/view/advice_view.h"
#include "headroom/cli/core/view/techniques_view.h"
#include "headroom/model/settings.h"

namespace headroom::cli {
namespace {

constexpr std::size_t kModules = 6;
constexpr double kSmall = 0.005;  // smaller shares of the whole count as "others"

// ---- Model and settings ----

std::string count_text(long long count) {
  const auto n = static_cast<double>(count);
  if (n >= 1e9) return fmt::format("{:.2f} B", n / 1e9);
  return fmt::format("{:.1f} M", n / 1e6);
}

std::string model_text(const Json& model, const Terminal& terminal) {
  const auto all = model.at("parameters").get<long long>();
  const auto trained = model.at("trainable_parameters").get<long long>();
  std::string text = terminal.paint(model.at("name").get<std::string>(), Colour::bold) + ", " +
                     count_text(all) + " parameters";
  if (trained > 0 && trained < all)
    text += fmt::format(", {} of them trained ({:.2g} %)", count_text(trained),
                        100.0 * static_cast<double>(trained) / static_cast<double>(all));
  return text + "\n";
}

// Defaults for keys that a config file leaves out; for a model by name they are not shown.
std::string defaults_text(const Json& model, const Terminal& terminal, int width) {
  const auto keys = model.at("defaulted").get<std::vector<std::string>>();
  if (keys.empty() || !model.at("name").get<std::string>().ends_with(".json")) return "";
  return wrapped(join(keys, ", "), terminal.paint("transformers' defaults: ", Colour::dim), "  ",
                 width);
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

std::string rows_text(const Json& settings) {
  std::string text = fmt::format("batch {}", settings.at("batch").get<long long>());
  if (!settings.at("seq").is_null())
    text += fmt::format(" x {} tokens", settings.at("seq").get<long long>());
  if (!settings.at("target_seq").is_null())
    text += fmt::format(" to {}", settings.at("target_seq").get<long long>());
  if (!settings.at("image").is_null())
    text += fmt::format(" of {} pixels", settings.at("image").get<long long>());
  return text;
}

// ---- Parts ----

struct PartOfPeak {
  const char* key;
  const char* name;
  char letter;
  Colour colour;
};
constexpr std::array<PartOfPeak, 9> kParts{{
    {"parameters_bytes", "parameters", 'P', Colour::blue},
    {"gradients_bytes", "gradients", 'G', Colour::green},
    {"optimizer_bytes", "optimizer", 'O', Colour::yellow},
    {"activations_bytes", "activations", 'A', Colour::magenta},
    {"temporaries_bytes", "temporaries", 'T', Colour::red},
    {"buffers_bytes", "buffers", 'B', Colour::cyan},
    {"inputs_bytes", "inputs", 'I', Colour::cyan},
    {"workspace_bytes", "workspaces", 'W', Colour::dim},
    {"rounding_bytes", "rounding", 'R', Colour::dim},
}};

double amount_of(const PartOfPeak& part, const Json& document) {
  return document.at("at_peak").at(part.key).get<double>();
}

bool is_small(const PartOfPeak& part, const Json& document) {
  const auto all = document.at("peak").at("process_bytes").get<double>();
  return amount_of(part, document) < kSmall * all;
}

std::vector<Terminal::Part> bar_parts(const Json& document) {
  std::vector<Terminal::Part> parts;
  double small = 0;
  for (const PartOfPeak& part : kParts) {
    if (is_small(part, document))
      small += amount_of(part, document);
    else
      parts.push_back({part.letter, part.colour, amount_of(part, document)});
  }
  const Json& peak = document.at("peak");
  const auto beyond = [&](const char* more, const char* less) {
    return peak.at(more).get<double>() - peak.at(less).get<double>();
  };
  parts.push_back({'-', Colour::dim, small + beyond("reserved_bytes", "allocated_bytes")});
  parts.push_back({'C', Colour::dim, beyond("process_bytes", "reserved_bytes")});
  return parts;
}

// For the document, or for one of its devices.
std::string verdict(const Json& of, const Terminal& terminal) {
  const Bytes spare = bytes_from(of.at("spare_bytes"));
  if (of.at("fits").get<bool>())
    return terminal.paint("fits", Colour::green) + ", " + to_string(spare) + " to spare";
  const std::string no = terminal.paint("does not fit", Colour::red) + ": ";
  if (spare.count >= 0) return no + "no free block is large enough";
  return no + to_string(Bytes{0} - spare) + " too much";
}

std::string card_line(const Json& document, const Terminal& terminal) {
  const Json& device = document.at("device");
  if (device.is_null()) return "No card to fit into: name one, --gpus \"RTX 4090\".\n";
  const Bytes total = bytes_from(device.at("total_bytes")),
              usable = bytes_from(device.at("usable_bytes"));
  std::string text = device.at("name").get<std::string>() + ", " + to_string(total);
  if (usable < total) text += " (" + to_string(usable) + " usable)";
  return in_lines(text + ": " + verdict(document, terminal), "", "  ", terminal);
}

// False if the chip's profile has no context size.
bool has_context(const Json& peak) {
  return peak.at("process_bytes") > peak.at("reserved_bytes");
}

// The picture shows the tightest of several cards; this table has one row per kind of card.
std::string devices_text(const Json& document, const Terminal& terminal) {
  if (!document.contains("devices")) return "";
  std::vector<std::pair<Json, int>> kinds;
  for (const Json& device : document.at("devices")) {
    const auto same = std::find_if(kinds.begin(), kinds.end(),
                                   [&](const auto& kind) { return kind.first == device; });
    if (same == kinds.end())
      kinds.emplace_back(device, 1);
    else
      ++same->second;
  }
  std::vector<std::vector<std::string>> rows;
  std::vector<std::string> without_context;
  for (const auto& [device, count] : kinds) {
    const auto name = device.at("name").get<std::string>();
    if (!has_context(device.at("peak"))) without_context.push_back(name);
    rows.push_back({count > 1 ? fmt::format("{} x {}", count, name) : name,
                    to_string(bytes_from(device.at("total_bytes"))),
                    to_string(bytes_from(device.at("peak").at("process_bytes"))),
                    verdict(device, terminal)});
  }
  std::string text = "\nOn each card\n" +
                     table({{"card"}, {"memory", true}, {"needs", true}, {""}}, rows, terminal);
  if (!without_context.empty() && without_context.size() < kinds.size())
    text += in_lines("Without the CUDA context, whose size on that card is unknown: " +
                         join(without_context, ", "),
                     "", "  ", terminal);
  return text;
}

std::string bar_of(const Json& document, const Terminal& terminal) {
  const int width = std::clamp(terminal.width, 20, 100);
  double whole = document.at("peak").at("process_bytes").get<double>();
  if (const Json& device = document.at("device"); !device.is_null())
    whole = std::max(whole, device.at("usable_bytes").get<double>());
  if (whole <= 0) return "";
  std::string text = terminal.stacked_bar(bar_parts(document), whole, width) + "\n";
  if (document.at("fits") == Json(false)) {
    const double share = document.at("device").at("usable_bytes").get<double>() / whole;
    const auto before = static_cast<std::size_t>(std::lround(share * width));
    text += std::string(before, ' ') + terminal.paint(terminal.unicode ? "↑" : "^", Colour::red) +
            " here the card ends\n";
  }
  return text;
}

std::string peak_sentence(const Json& document) {
  const Json& peak = document.at("peak");
  std::string text = "Peak in " + peak.at("phase").get<std::string>();
  if (const auto step = peak.at("step").get<int>(); step > 0)
    text += fmt::format(" of step {}", step);
  return text + "\n";
}

std::string parts_table(const Json& document, const Terminal& terminal) {
  const Json& peak = document.at("peak");
  const auto all = peak.at("process_bytes").get<double>();
  std::string text;
  std::int64_t small = 0;
  const auto line = [&](const std::string& key, const std::string& name, const Json& amount,
                        const std::string& remark) {
    const std::string figures =
        fmt::format("  {} {:<12} {:>11} {:>4.0f} %", key, name, to_string(bytes_from(amount)),
                    all > 0 ? 100 * amount.get<double>() / all : 0);
    if (remark.empty())
      text += figures + "\n";
    else
      text += in_lines(remark, figures + "  ", std::string(cells(figures) + 2, ' '), terminal);
  };
  for (const PartOfPeak& part : kParts) {
    const Json& amount = document.at("at_peak").at(part.key);
    if (is_small(part, document))
      small += amount.get<std::int64_t>();
    else
      line(terminal.key_of({part.letter, part.colour, 0}), part.name, amount, "");
  }
  if (small > 0) line(" ", "others", Json(small), "");
  line(" ", "allocated", peak.at("allocated_bytes"), "");
  const bool unknown = !has_context(peak) && !document.at("device").is_null();
  line("-", "reserved", peak.at("reserved_bytes"),
       unknown ? "with the cache; a CUDA context comes on top"
               : "with what the allocator keeps in its cache");
  if (has_context(peak))
    line("C", "process", peak.at("process_bytes"), "with the CUDA context: what nvidia-smi shows");
  return text;
}

std::string rule_text(const Json& document, int width) {
  if (!document.contains("rule")) return "";
  const Json& rule = document.at("rule");
  return wrapped(fmt::format("{}, and activations", rule.at("why").get<std::string>()),
                 "By the rule of thumb " + to_string(bytes_from(rule.at("total_bytes"))) + ": ",
                 "  ", width);
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
  Bytes most;
  int count = 0;
};

// The largest kinds of modules; names that differ only in numbers are one kind.
std::vector<Alike> kinds_of(const Json& by_module) {
  std::vector<Alike> kinds;
  for (const Json& module : by_module) {
    const auto name = module.at("name").get<std::string>();
    if (name.empty()) continue;
    const std::string pattern = pattern_of(name);
    auto same = std::find_if(kinds.begin(), kinds.end(),
                             [&](const Alike& kind) { return kind.pattern == pattern; });
    if (same == kinds.end()) same = kinds.insert(kinds.end(), {pattern, Bytes{0}, 0});
    same->most = std::max(same->most, bytes_from(module.at("peak_bytes")));
    ++same->count;
  }
  return kinds;
}

std::string modules_table(const Json& document) {
  const std::vector<Alike> kinds = kinds_of(document.at("by_module"));
  if (kinds.empty()) return "";
  std::string text = "\nModules that hold the most at one time\n";
  for (std::size_t i = 0; i < std::min(kModules, kinds.size()); ++i) {
    text += fmt::format("  {:>11}  {}", to_string(kinds[i].most), kinds[i].pattern);
    text += kinds[i].count > 1 ? fmt::format("  (each of {})\n", kinds[i].count) : "\n";
  }
  return text;
}

}  // namespace

std::string settings_text(const Json& settings) {
  static const Json usual = model::to_json(model::Settings{});
  const auto word = [&](const char* key) { return value_text(settings.at(key)); };
  std::vector<std::string> parts;
  if (!settings.at("task").is_null()) parts.push_back(word("task"));
  parts.push_back(word("mode"));
  parts.push_back(rows_text(settings));
  parts.push_back(word("dtype"));
  if (word("mode") == "train") parts.push_back(word("optimizer_impl") + " " + word("optimizer"));
  if (word("task") != "image-classification") parts.push_back(word("attention"));
  for (const auto& [key, value] : settings.items()) {
    if (is_said_elsewhere(key) || value == usual.at(key)) continue;
    std::string name = key;
    std::replace(name.begin(), name.end(), '_', '-');
    parts.push_back(value == Json(true) ? name : name + " " + value_text(value));
  }
  return join(parts, ", ");
}

std::string notes_text(const Json& document, const Terminal& terminal) {
  const int width = std::clamp(terminal.width, 20, 100);
  std::string text;
  for (const Json& note : document.at("notes"))
    text += wrapped(note.get<std::string>(), terminal.paint("note: ", Colour::dim), "  ", width);
  return text;
}

std::string estimate_text(const Json& document, const Terminal& terminal) {
  const int width = std::clamp(terminal.width, 20, 100);
  std::string text = model_text(document.at("model"), terminal);
  text += wrapped(settings_text(document.at("settings")), "", "", width);
  text += defaults_text(document.at("model"), terminal, width) + notes_text(document, terminal);
  text += "\n" + card_line(document, terminal) + bar_of(document, terminal) + "\n";
  text += peak_sentence(document) + parts_table(document, terminal) + rule_text(document, width);
  text +=
      devices_text(document, terminal) + modules_table(document) + advice_text(document, terminal);
  if (document.contains("techniques")) text += techniques_text(document, terminal);
  const bool ran = document.at("method") == "dry-run";
  return text +
         terminal.paint(fmt::format("\n{} {:.2f} s\n",
                                    ran ? "Dry run of the model's own code in" : "By formula in",
                                    document.at("took_s").get<double>()),
                        Colour::dim);
}

}  // namespace headroom::cli
