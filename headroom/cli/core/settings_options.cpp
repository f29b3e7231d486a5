#include "headroom/cli/core/settings_options.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "headroom/base/error.h"
#include "headroom/base/text.h"
#include "headroom/plan/technique.h"

namespace headroom::cli {
namespace {

using plan::Option;
using Kind = Option::Kind;
using namespace model;  // the choices<...> of all kinds

constexpr const char* kValueNames[] = {"WORD", "N", "X", "A,B"};  // by Kind, of those with a value

bool is_flag(const Option& option) {
  return option.kind == Kind::flag || option.kind == Kind::own;
}

struct Group {
  const char* title;
  std::vector<Option> options;
};

// The options that choose the run. All others are of techniques.
const std::vector<Group>& groups() {
  static const std::vector<Group> all = [] {
    std::vector<Group> known{
        {"Input of a step",
         {{"task", Kind::word, "Training task (default: from the configuration)", choices<Task>},
          {"batch", Kind::count, "Rows of one forward pass (default 1)"},
          {"seq", Kind::count,
           "Tokens in a row (default 512, or the model's maximum if that is less)"},
          {"target_seq", Kind::count, "Tokens in a row of the decoder (default: as --seq)"},
          {"image", Kind::count,
           "Width and height of an image, in pixels (default: from the configuration)"},
          {"accumulation", Kind::count, "Forward and backward passes for each optimizer step"},
          {"mask", Kind::word, "Attention mask that the model gets", choices<Mask>},
          {"mode", Kind::word, "What to run; generate keeps a cache of --seq tokens",
           choices<Mode>},
          {"steps", Kind::count, "Steps in the dry run (default 2)"}}},
        {"Computation",
         {{"transformers", Kind::word, "Version of transformers whose code the model follows",
           choices<Transformers>},
          {"clip", Kind::number, "Clip gradients by this global norm"},
          {"policy", Kind::word,
           "Policy that chooses the settings not given (docs/guides/will-it-fit.md)",
           choices<Policy>}}},
        {"What takes or saves memory", {}}};
    for (const plan::Technique& technique : plan::techniques())
      known.back().options.insert(known.back().options.end(), technique.options.begin(),
                                  technique.options.end());
    return known;
  }();
  return all;
}

std::vector<Option> all_options() {
  std::vector<Option> all;
  for (const Group& group : groups())
    all.insert(all.end(), group.options.begin(), group.options.end());
  return all;
}

std::string help_of(const Option& option) {
  if (option.words == nullptr) return option.help;
  const Json usual = to_json(Settings{}).value(option.key, Json());
  return std::string(option.help) + ": " + join(option.words(), ", ") +
         (usual.is_string() ? " (default " + usual.get<std::string>() + ")" : "");
}

std::string option_name(std::string key) {
  std::replace(key.begin(), key.end(), '_', '-');
  return "--" + key;
}

Json value(const Option& option, const std::string& text) {
  const auto refuse = [&](const char* expected) {
    const std::string name = option_name(option.key);
    throw UsageError(expectation(name, std::string(expected) + " for " + name, text));
  };
  if (option.kind == Kind::word) return text;
  if (option.kind == Kind::count) {
    const auto number = to_integer(text);
    if (!number) refuse("a whole number");
    return *number;
  }
  if (option.kind == Kind::number) {
    const auto number = to_number(text);
    if (!number) refuse("a number");
    return *number;
  }
  Json list = Json::array();
  for (const std::string_view part : split(text, ',')) list.push_back(std::string(trim(part)));
  return list;
}

// "`lora_rank`" as "--lora-rank".
std::string with_option_names(std::string words) {
  for (const Option& option : all_options()) {
    const std::string quoted = "`" + std::string(option.key) + "`";
    if (const std::size_t at = words.find(quoted); at != std::string::npos)
      words.replace(at, quoted.size(), option_name(option.key));
  }
  return words;
}

}  // namespace

void SettingsOptions::add_to(CLI::App* command, const std::vector<std::string>& only,
                             const std::map<std::string, std::string>& helps) {
  for (const Group& group : groups())
    for (const Option& option : group.options) {
      const std::string name = option_name(option.key);
      if (!only.empty() && std::find(only.begin(), only.end(), name) == only.end()) continue;
      const auto own = helps.find(name);
      const std::string help = own != helps.end() ? own->second : help_of(option);
      CLI::Option* added = is_flag(option)
                               ? command->add_flag(name, flags_[option.key], help)
                               : command->add_option(name, texts_[option.key], help)
                                     ->type_name(kValueNames[static_cast<int>(option.kind)]);
      added->group(group.title);
    }
}

std::vector<std::pair<std::string, std::string>> SettingsOptions::words() {
  std::vector<std::pair<std::string, std::string>> all;
  for (const Option& option : all_options())
    if (option.words != nullptr)
      all.emplace_back(option_name(option.key), join(option.words(), " "));
  return all;
}

bool SettingsOptions::flag(const std::string& key) const {
  const auto found = flags_.find(key);
  return found != flags_.end() && found->second;
}
std::optional<std::string> SettingsOptions::text(const std::string& key) const {
  const auto found = texts_.find(key);
  return found == texts_.end() ? std::nullopt : found->second;
}

std::vector<std::string> SettingsOptions::given() const {
  std::vector<std::string> names;
  for (const Option& option : all_options())
    if (is_flag(option) ? flag(option.key) : text(option.key).has_value())
      names.push_back(option_name(option.key));
  return names;
}

model::Settings SettingsOptions::settings() const {
  Json json = Json::object();
  for (const Option& option : all_options()) {
    if (is_flag(option)) {
      if (!flag(option.key)) continue;
      if (option.kind == Kind::own)
        json["techniques"].push_back(option.key);
      else
        json[option.key] = true;
    } else if (const std::optional<std::string> given = text(option.key)) {
      json[option.key] = value(option, *given);
    }
  }
  try {
    return model::settings_from_json(json);
  } catch (const UsageError& error) {
    throw UsageError(error.complaint().where, with_option_names(error.complaint().words));
  }
}

}  // namespace headroom::cli
