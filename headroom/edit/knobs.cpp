#include "headroom/edit/knobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <set>

#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/base/text.h"
#include "headroom/edit/detail/command_values.h"
#include "headroom/edit/detail/document.h"
#include "headroom/edit/detail/mapping.h"
#include "headroom/edit/shell_words.h"

namespace headroom::edit {

using detail::Edit;
using detail::Form;
using detail::Mapping;
using detail::Slot;

namespace {

const char* word_of(Quantity quantity) {
  return quantity == Quantity::batch ? "batch" : "accumulation";
}

// One mapped place, as found.
struct Knob {
  Mapping mapping;
  std::optional<long long> first;  // std::nullopt if not given
  std::vector<Edit> edits;         // of the command
  std::set<std::size_t> programs;  // clauses of the command that have it as an argument
  std::filesystem::path file;      // or a place in this file:
  Slot slot;                       // the place in the file
};

long long checked_value(const Mapping& mapping, const std::string& text) {
  const bool digits = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  const auto value = digits ? to_integer(text) : std::nullopt;
  if (value && *value >= 1 && *value <= kMostBatch) return *value;
  std::string to_try = "a number there, or no map for it";
  if (text.starts_with('$'))
    to_try = fmt::format("a map of the variable, \"env:NAME={}\"", word_of(mapping.quantity));
  throw UsageError(expectation("--map " + mapping.text,
                               "a whole number from 1 to 1000000000 at " + mapping.place(), text,
                               to_try));
}

// The same path for all names of a file.
std::filesystem::path real_path(const std::filesystem::path& file) {
  std::error_code failure;
  auto path = std::filesystem::weakly_canonical(file, failure);
  return failure ? file : path;
}

// A readable hash of a file without its mapped values, the same on every machine.
std::string fingerprint(const std::string& text) {
  std::uint64_t hash = 1469598103934665603ULL;  // FNV-1a
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  char out[17];
  std::snprintf(out, sizeof out, "%016llx", static_cast<unsigned long long>(hash));
  return std::string(out, 8);
}

}  // namespace

struct Knobs::State {
  std::vector<std::string> command;
  std::vector<Knob> places;
  std::map<std::filesystem::path, std::string> files;
  std::vector<std::string> assumptions;

  [[nodiscard]] const Knob* first_of(Quantity quantity) const {
    const auto place = std::find_if(places.begin(), places.end(), [&](const Knob& candidate) {
      return candidate.mapping.quantity == quantity;
    });
    return place == places.end() ? nullptr : &*place;
  }
  [[nodiscard]] std::optional<long long> value(Quantity quantity) const {
    const Knob* place = first_of(quantity);
    if (place == nullptr) return {};
    return place->first.value_or(1);
  }

  // ---- Finding ----

  void add(const Mapping& mapping) {
    for (const Knob& other : places) {
      if (other.mapping.place() != mapping.place()) continue;
      if (other.mapping.quantity == mapping.quantity) return;
      throw UsageError(
          expectation("--map", mapping.place() + " to be one of batch, accumulation", "both", ""));
    }
    Knob place{.mapping = mapping, .first = {}, .edits = {}, .file = {}, .slot = {}};
    if (mapping.form == Form::file)
      look_in_file(place);
    else
      look_in_command(place);
    places.push_back(std::move(place));
  }

  void look_in_file(Knob& place) {
    const Mapping& mapping = place.mapping;
    place.file = real_path(mapping.file);
    if (!files.contains(place.file)) files[place.file] = read_input(place.file);
    const bool may_be_missing = mapping.quantity == Quantity::accumulation;
    place.slot =
        detail::find_slot(files[place.file], mapping.file.string(), mapping.name, may_be_missing);
    if (place.slot.value) place.first = checked_value(mapping, std::to_string(*place.slot.value));
  }

  void look_in_command(Knob& place) {
    const Mapping& mapping = place.mapping;
    const auto found = detail::values_in(command, mapping);
    for (const detail::CommandValue& value : found) {
      const long long number = checked_value(mapping, value.text);
      agree(mapping, place.first.value_or(number), mapping, number);
      place.first = number;
      place.edits.push_back(value.edit);
      if (mapping.form != Form::variable) place.programs.insert(value.clause);
      if (value.times > 1)
        assumptions.push_back(fmt::format(
            "{} occurs {} times in the command; the last one, {}, has effect and is changed",
            mapping.name, value.times, value.text));
    }
    if (found.empty() && mapping.form == Form::variable) look_in_environment(place);
  }

  void look_in_environment(Knob& place) const {
    const auto set = environment(place.mapping.name.c_str());
    if (set && !set->empty()) place.first = checked_value(place.mapping, *set);
  }

  static void agree(const Mapping& one, long long first, const Mapping& other, long long second) {
    if (first == second) return;
    throw UsageError(
        expectation("--map", fmt::format("one {} in all mapped places", word_of(one.quantity)),
                    fmt::format("{} {} and {} {}", one.place(), first, other.place(), second),
                    "the same value in both"));
  }

  // ---- Values that were not found ----

  void settle() {
    for (Knob& place : places) {
      if (place.first) continue;
      if (place.mapping.quantity == Quantity::batch) refuse_missing(place.mapping);
      make_room(place);
      assumptions.push_back(place.mapping.place() +
                            " is not given: it counts as 1, and is added when it has to change");
    }
    for (const Knob& place : places) {
      const Knob& first = *first_of(place.mapping.quantity);
      agree(first.mapping, first.first.value_or(1), place.mapping, place.first.value_or(1));
    }
    refuse_halves();
  }

  [[nodiscard]] std::set<std::size_t> programs_given(Quantity quantity) const {
    std::set<std::size_t> all;
    for (const Knob& place : places)
      if (place.mapping.quantity == quantity)
        all.insert(place.programs.begin(), place.programs.end());
    return all;
  }

  // If a program's batch changed without its accumulation, its effective batch would change.
  void refuse_halves() const {
    const auto batch = programs_given(Quantity::batch);
    const auto accumulation = programs_given(Quantity::accumulation);
    if (batch.empty() || accumulation.empty() || batch == accumulation) return;
    throw UsageError(
        fmt::format("[--map] expected {} and {} for the same programs, received a command where "
                    "one program is given only one of them; try both for each of them",
                    first_of(Quantity::batch)->mapping.place(),
                    first_of(Quantity::accumulation)->mapping.place()));
  }

  [[noreturn]] void refuse_missing(const Mapping& mapping) const {
    std::string to_try = mapping.name + " 32 in the command, so that its value is known";
    if (mapping.form == Form::key) to_try = mapping.name + "=32 in the command";
    if (mapping.form == Form::variable) to_try = "export " + mapping.name + "=32";
    if (const auto meant = detail::nearest_name(command, mapping))
      to_try = fmt::format("\"{}={}\"", *meant, word_of(mapping.quantity));
    throw UsageError(fmt::format(
        "[--map {}] expected {} in {}; try {}", mapping.text, mapping.place(),
        mapping.form == Form::variable ? "the environment, received an environment without it"
                                       : "the command, received a command without it",
        to_try));
  }

  // Beside the program's batch, else at the end.
  void make_room(Knob& place) const {
    if (place.mapping.form == Form::variable || place.mapping.form == Form::file) return;
    const Knob* batch = first_of(Quantity::batch);
    const Mapping* beside = batch == nullptr ? nullptr : &batch->mapping;
    place.edits = {detail::room_for(command, place.mapping, beside)};
  }

  // ---- Changing ----

  [[nodiscard]] Changed changed(const std::map<Quantity, std::string>& values) const {
    Changed out{.command = command, .environment = {}, .files = {}};
    std::vector<Edit> edits;
    std::map<std::filesystem::path, std::vector<Edit>> in_files;
    for (const Knob& place : places) {
      const std::string& value = values.at(place.mapping.quantity);
      if (value == std::to_string(place.first.value_or(1))) continue;
      for (const Edit& edit : place.edits) edits.push_back(edit.put(value));
      if (place.mapping.form == Form::file) {
        in_files[place.file].push_back({.argument = 0,
                                        .at = place.slot.at,
                                        .length = place.slot.length,
                                        .before = place.slot.before + value + place.slot.after});
      } else if (place.edits.empty()) {
        out.environment.push_back(place.mapping.name + "=" + value);
      }
    }
    detail::apply(edits, out.command);
    for (const auto& [file, changes] : in_files) {
      std::vector<std::string> text{files.at(file)};
      detail::apply(changes, text);
      out.files[file] = text[0];
    }
    return out;
  }
};

std::vector<std::filesystem::path> mapped_files(const std::vector<std::string>& maps) {
  std::vector<std::filesystem::path> files;
  for (const std::string& map : maps) {
    const Mapping mapping = detail::parse_mapping(map);
    const auto file = real_path(mapping.file);
    const bool known = std::find(files.begin(), files.end(), file) != files.end();
    if (mapping.form == Form::file && !known) files.push_back(file);
  }
  return files;
}

Knobs::Knobs(const std::vector<std::string>& maps, std::vector<std::string> command) {
  auto state = std::make_shared<State>();
  state->command = std::move(command);
  for (const std::string& map : maps) state->add(detail::parse_mapping(map));
  state->settle();
  state_ = std::move(state);
}

bool Knobs::has(Quantity quantity) const {
  return state_->first_of(quantity) != nullptr;
}

std::optional<long long> Knobs::value(Quantity quantity) const {
  return state_->value(quantity);
}

std::string Knobs::name(Quantity quantity) const {
  std::vector<std::string> names;
  for (const Knob& place : state_->places) {
    if (place.mapping.quantity == quantity) names.push_back(place.mapping.place());
  }
  return join(names, " and ");
}

std::string Knobs::setting(Quantity quantity, long long value) const {
  const Knob* first = state_->first_of(quantity);
  const bool is_flag = first != nullptr && first->mapping.form == Form::flag;
  return name(quantity) + (is_flag ? " " : "=") + std::to_string(value);
}

std::vector<std::string> Knobs::assumptions() const {
  return state_->assumptions;
}

std::string Knobs::job() const {
  const Changed open =
      state_->changed({{Quantity::batch, "{batch}"}, {Quantity::accumulation, "{accumulation}"}});
  std::error_code ignored;
  std::string out =
      fmt::format("cd {} &&", quoted(std::filesystem::current_path(ignored).string()));
  for (const std::string& variable : open.environment) out += " " + quoted(variable);
  for (const std::string& word : open.command) out += " " + quoted(word);
  for (const auto& [file, text] : open.files)
    out += " # " + file.string() + " " + fingerprint(text);
  return out;
}

Changed Knobs::with(long long batch, long long accumulation) const {
  return state_->changed({{Quantity::batch, std::to_string(batch)},
                          {Quantity::accumulation, std::to_string(accumulation)}});
}

std::vector<std::string> Knobs::with_arguments(const std::vector<std::string>& command,
                                               const std::vector<std::string>& arguments) const {
  const Knob* batch = state_->first_of(Quantity::batch);
  const bool in_command = batch != nullptr && batch->mapping.form != Form::file;
  return detail::with_arguments(command, arguments, in_command ? &batch->mapping : nullptr);
}

}  // namespace headroom::edit
