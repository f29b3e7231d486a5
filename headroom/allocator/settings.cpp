#include "headroom/allocator/settings.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>

#include "headroom/allocator/detail/address_reserve.h"
#include "headroom/allocator/detail/settings_walk.h"
#include "headroom/base/error.h"
#include "headroom/base/text.h"

namespace headroom::allocator {
namespace {

using detail::Walk;

// ---- Options: how to read each (the walk is at its value) and write it ----

Bytes whole_mib(std::uint64_t mib) {
  const auto largest = static_cast<std::uint64_t>(kLargestSize.count >> 20);
  return Bytes{static_cast<std::int64_t>(std::min(mib, largest)) << 20};
}
std::string in_mib(Bytes size) {
  return std::to_string(size.count >> 20);
}

// The shortest text that reads back as the same number. Subnormal numbers need the hexadecimal
// form: std::stod rejects their rounded decimal form as out of range.
std::string in_digits(double value) {
  char digits[64];
  const bool exact_only = value != 0 && !std::isnormal(value);
  const auto end = exact_only
                       ? std::to_chars(digits, std::end(digits), value, std::chars_format::hex).ptr
                       : std::to_chars(digits, std::end(digits), value).ptr;
  return (exact_only ? "0x" : "") + std::string(digits, end);
}

template <Bytes Settings::*field>
std::string write_size(const Settings& settings) {
  return in_mib(settings.*field);
}

template <double Settings::*field>
std::string write_fraction(const Settings& settings) {
  return in_digits(settings.*field);
}

template <std::optional<Bytes> Settings::*field>
std::string write_optional_size(const Settings& settings) {
  return settings.*field ? in_mib(*(settings.*field)) : "";
}
template <std::optional<Bytes> Settings::*field>
void read_optional_size(Walk& walk, Settings& settings) {
  settings.*field = whole_mib(walk.next_whole_number());
}

template <bool Settings::*field>
void read_switch(Walk& walk, Settings& settings) {
  settings.*field = walk.next_switch();
}
template <bool Settings::*field>
std::string write_switch(const Settings& settings) {
  return settings.*field ? "True" : "False";
}

void read_backend(Walk& walk, Settings& settings) {
  const std::string& name = walk.next();
  if (name != "native" && name != "cudaMallocAsync") walk.refuse(name);
  const Backend wanted = name == "native" ? Backend::native : Backend::cuda_malloc_async;
  if (walk.backend_is_fixed && wanted != settings.backend)
    walk.refuse(name, "the backend the program started with, because it cannot change later");
  settings.backend = wanted;
  walk.backend_is_fixed = true;
}
std::string write_backend(const Settings& settings) {
  return settings.backend == Backend::native ? "native" : "cudaMallocAsync";
}

void read_large_segment_size(Walk& walk, Settings& settings) {
  const std::uint64_t mib = walk.next_whole_number();
  if (mib <= 10) walk.refuse(walk.last());
  settings.large_segment_size = whole_mib(mib);
}

// For max_split_size and max_non_split_rounding_size.
template <auto Settings::*field>
void read_size_of_a_segment_or_more(Walk& walk, Settings& settings) {
  const Bytes size = whole_mib(walk.next_whole_number());
  if (size < settings.large_segment_size)
    walk.refuse(walk.last(), "a whole number of MiB, at least large_segment_size_mb, here " +
                                 in_mib(settings.large_segment_size));
  settings.*field = size;
}

void read_gc_threshold(Walk& walk, Settings& settings) {
  const double threshold = walk.next_fraction();
  if (!(threshold > 0 && threshold < 1)) walk.refuse(walk.last());
  settings.garbage_collection_threshold = threshold;
}

void read_memory_fraction(Walk& walk, Settings& settings) {
  const double fraction = walk.next_fraction();
  if (!(fraction >= 0 && fraction <= 1)) walk.refuse(walk.last());
  settings.per_process_memory_fraction = fraction;
}

// One number for all sizes, or a list [MiB:divisions,...,>:divisions]. The first entry of a list
// also applies to all smaller sizes; ">" applies to all sizes above the previous entry.
void read_roundup(Walk& walk, Settings& settings) {
  auto& table = settings.roundup_power2_divisions;
  if (walk.peek() != "[") {
    const std::uint64_t divisions = walk.next_whole_number();
    if (!std::has_single_bit(divisions)) walk.refuse(walk.last());
    table.fill(divisions);
    return;
  }
  walk.next();
  bool first = true;
  std::size_t last_entry = 0;
  while (walk.peek() != "]") {
    const std::string from = walk.next();
    walk.next();  // the colon, not checked
    const std::uint64_t divisions = walk.next_whole_number();
    if (divisions != 0 && !std::has_single_bit(divisions)) walk.refuse(walk.last());
    if (from == ">") {
      std::fill(table.begin() + static_cast<std::ptrdiff_t>(last_entry) + 1, table.end(),
                divisions);
    } else {
      const std::uint64_t mib = walk.whole_number(from);
      if (!std::has_single_bit(mib)) walk.refuse(from);
      last_entry = std::min<std::size_t>(std::countr_zero(mib), table.size() - 1);
      if (first) std::fill_n(table.begin(), last_entry, divisions);
      first = false;
      table[last_entry] = divisions;
    }
    if (walk.peek() != "]") walk.next();  // the comma, not checked
  }
  walk.next();
}
std::string write_roundup(const Settings& settings) {
  const auto& table = settings.roundup_power2_divisions;
  const auto entry = [&](std::size_t i) {
    return std::to_string(std::uint64_t{1} << i) + ":" + std::to_string(table[i]);
  };
  std::size_t low = 0;  // entries up to `low` are equal, and so are those from `high` on
  while (low + 1 < table.size() && table[low + 1] == table[0]) ++low;
  std::size_t high = table.size() - 1;
  while (high > 0 && table[high - 1] == table.back()) --high;
  if (high == 0) return std::to_string(table[0]);
  std::vector<std::string> entries;
  for (std::size_t i = low; i <= high; ++i) entries.push_back(entry(i));
  if (high + 1 < table.size()) entries.push_back(">:" + std::to_string(table.back()));
  return "[" + join(entries, ",") + "]";
}

void read_reserve(Walk& walk, Settings& settings) {
  if (const auto reserve = detail::reserve_of(walk.next()))
    settings.expandable_segments_reserve = reserve;
}
std::string write_reserve(const Settings& settings) {
  const auto& reserve = settings.expandable_segments_reserve;
  return reserve ? detail::to_text(*reserve) : "";
}

void read_reserve_by_class(Walk& walk, Settings& settings) {
  if (walk.next() != "[") walk.refuse(walk.last());
  settings.expandable_segments_reserve_by_class.clear();
  while (walk.peek() != "]") {
    const std::string name = walk.next();
    walk.next();  // the colon, not checked
    if (const auto reserve = detail::reserve_of(walk.next()))
      detail::set_class_reserve(settings, name, *reserve);
    if (walk.peek() == ",") walk.next();
  }
  walk.next();
}
std::string write_reserve_by_class(const Settings& settings) {
  std::vector<std::string> entries;
  for (const auto& [name, reserve] : settings.expandable_segments_reserve_by_class)
    entries.push_back(name + ":" + detail::to_text(reserve));
  return entries.empty() ? "" : "[" + join(entries, ",") + "]";
}

void read_register_threads(Walk& walk, Settings& settings) {
  const std::uint64_t threads = walk.next_whole_number();
  if (!std::has_single_bit(threads) || threads > 128) walk.refuse(walk.last());
  settings.pinned_num_register_threads = threads;
}
void read_reserve_segment(Walk& walk, Settings& settings) {
  const std::uint64_t mib = walk.next_whole_number();
  if (mib == 0) walk.refuse(walk.last());
  settings.pinned_reserve_segment_size = whole_mib(mib);
}

// PyTorch reads a text three times: for the segment size, which bounds other options; for the
// options that all accelerators share; for CUDA's own. Each pass steps over the options of the
// others.
enum class Pass { segment, shared, cuda };

struct Option {
  std::string_view name;
  Pass pass;
  void (*read)(Walk&, Settings&);
  std::string (*write)(const Settings&);
};

bool has(const Version& version, std::string_view option) {
  return detail::info_of(option).since <= version.minor;
}

template <bool Settings::*field>
constexpr Option a_switch(std::string_view name, Pass pass) {
  return {name, pass, read_switch<field>, write_switch<field>};
}

constexpr Option kOptions[] = {
    {"backend", Pass::cuda, read_backend, write_backend},
    {"large_segment_size_mb", Pass::segment, read_large_segment_size,
     write_size<&Settings::large_segment_size>},
    {"max_split_size_mb", Pass::shared, read_size_of_a_segment_or_more<&Settings::max_split_size>,
     write_optional_size<&Settings::max_split_size>},
    {"max_non_split_rounding_mb", Pass::shared,
     read_size_of_a_segment_or_more<&Settings::max_non_split_rounding_size>,
     write_size<&Settings::max_non_split_rounding_size>},
    {"garbage_collection_threshold", Pass::shared, read_gc_threshold,
     write_fraction<&Settings::garbage_collection_threshold>},
    {"roundup_power2_divisions", Pass::shared, read_roundup, write_roundup},
    a_switch<&Settings::expandable_segments>("expandable_segments", Pass::shared),
    {"per_process_memory_fraction", Pass::cuda, read_memory_fraction,
     write_fraction<&Settings::per_process_memory_fraction>},
    a_switch<&Settings::release_lock_on_cudamalloc>("release_lock_on_cudamalloc", Pass::cuda),
    a_switch<&Settings::graph_capture_record_stream_reuse>("graph_capture_record_stream_reuse",
                                                           Pass::cuda),
    a_switch<&Settings::pinned_use_cuda_host_register>("pinned_use_cuda_host_register", Pass::cuda),
    {"pinned_num_register_threads", Pass::cuda, read_register_threads,
     [](const Settings& settings) { return std::to_string(settings.pinned_num_register_threads); }},
    a_switch<&Settings::pinned_use_background_threads>("pinned_use_background_threads",
                                                       Pass::shared),
    {"pinned_reserve_segment_size_mb", Pass::cuda, read_reserve_segment,
     write_size<&Settings::pinned_reserve_segment_size>},
    a_switch<&Settings::pinned_free_catch_all>("pinned_free_catch_all", Pass::cuda),
    a_switch<&Settings::throw_on_cudamalloc_oom>("throw_on_cudamalloc_oom", Pass::cuda),
    {"pinned_max_round_threshold_mb", Pass::shared,
     read_optional_size<&Settings::pinned_max_round_threshold>,
     write_optional_size<&Settings::pinned_max_round_threshold>},
    {"pinned_max_cached_size_mb", Pass::shared,
     read_optional_size<&Settings::pinned_max_cached_size>,
     write_optional_size<&Settings::pinned_max_cached_size>},
    {"expandable_segments_reserve", Pass::cuda, read_reserve, write_reserve},
    {"expandable_segments_reserve_by_class", Pass::cuda, read_reserve_by_class,
     write_reserve_by_class},
};

const Option& option_named(std::string_view word, const Version& version) {
  if (word == "release_lock_on_hipmalloc") word = "release_lock_on_cudamalloc";
  if (word == "pinned_use_hip_host_register") word = "pinned_use_cuda_host_register";
  for (const Option& option : kOptions)
    if (option.name == word && has(version, word)) return option;
  std::vector<std::string> names;
  for (const Option& option : kOptions)
    if (has(version, option.name)) names.emplace_back(option.name);
  throw UsageError(expectation(
      "parse_settings", "an option of PyTorch " + std::string(version.torch) + "'s allocator", word,
      nearest(word, names).value_or("one of " + join(names, ", "))));
}

// ---- Reading a text ----

// The value of an option that this pass does not read: one word, or a list up to its bracket.
std::string step_over_value(Walk& walk) {
  std::string value = walk.next();
  if (value != "[") return value;
  while (walk.last() != "]") value += walk.next();
  return value;
}

// Looks at every word, even where no option name can be.
void read_segment_size(std::string_view text, Settings& settings) {
  Walk walk(text);
  while (!walk.done()) {
    const std::string word = walk.next();
    if (word != "large_segment_size_mb") continue;
    walk.belongs_to(word);
    walk.next();  // the colon, not checked
    read_large_segment_size(walk, settings);
  }
}

// Calls `visit(option, walk)` with the walk at each option's value.
template <typename Visit>
void for_each_option(Walk& walk, const Version& version, Visit visit) {
  while (!walk.done()) {
    const Option& option = option_named(walk.next(), version);
    walk.belongs_to(option.name);
    walk.next();  // the colon, not checked
    visit(option, walk);
    if (!walk.done()) walk.next();  // the comma, not checked
  }
}

void read_options(Walk walk, Pass pass, Settings& settings, const Version& version) {
  for_each_option(walk, version, [&](const Option& option, Walk& at_value) {
    if (option.pass == pass) {
      option.read(at_value, settings);
    } else {
      step_over_value(at_value);
    }
  });
}

void read_shared(std::string_view text, Settings& settings, const Version& version) {
  settings.max_split_size.reset();
  settings.roundup_power2_divisions.fill(0);
  settings.garbage_collection_threshold = 0;
  read_segment_size(text, settings);
  settings.max_non_split_rounding_size = settings.large_segment_size;
  read_options(Walk(text), Pass::shared, settings, version);
}

}  // namespace

Settings parse_settings(std::string_view text, const Version& version) {
  return parse_settings(text, text, version);
}

Settings parse_settings(std::string_view shared_text, std::string_view cuda_text,
                        const Version& version) {
  Settings settings;
  read_shared(shared_text, settings, version);
  // The first option that names a backend decides it, while the library loads; a different one
  // later is refused.
  read_options(Walk(cuda_text), Pass::cuda, settings, version);
  return settings;
}

void apply(Settings& settings, std::string_view text, const Version& version) {
  Settings changed = settings;
  read_shared(text, changed, version);
  Walk walk(text);
  walk.backend_is_fixed = true;
  read_options(std::move(walk), Pass::cuda, changed, version);
  settings = changed;
}

std::string to_string(const Settings& settings) {
  Settings defaults;
  defaults.large_segment_size = settings.large_segment_size;
  defaults.max_non_split_rounding_size = settings.large_segment_size;
  std::vector<std::string> parts;
  for (const Option& option : kOptions) {
    const std::string value = option.write(settings);
    const bool is_default = option.pass == Pass::segment
                                ? settings.large_segment_size == Settings{}.large_segment_size
                                : value == option.write(defaults);
    if (!is_default) parts.push_back(std::string(option.name) + ":" + value);
  }
  return join(parts, ",");
}

std::vector<NamedValue> named_options(std::string_view text) {
  std::vector<NamedValue> named;
  Walk walk(text);
  for_each_option(walk, versions().back(), [&](const Option& option, Walk& at_value) {
    named.push_back({std::string(option.name), step_over_value(at_value)});
  });
  return named;
}

bool names_option(std::string_view text, std::string_view option) {
  const std::vector<NamedValue> named = named_options(text);
  return std::any_of(named.begin(), named.end(),
                     [&](const NamedValue& value) { return value.option == option; });
}

}  // namespace headroom::allocator
