// The settings in PYTORCH_CUDA_ALLOC_CONF, parsed exactly as PyTorch parses them. Versions differ
// in the options they have (OptionInfo::since).
//
// It accepts and refuses the same texts and gets the same values, odd ones included: "512GB" is 512
// MiB, because PyTorch stops at the first letter; the word between option and value is never
// checked; an unknown key is refused. Two checks are left to PyTorch, which has the facts:
// cudaMallocAsync needs a driver of CUDA 11.4 or newer, and expandable segments need one that maps
// memory. The functions are pure: they run on any thread, need no GPU, and neither read nor change
// this process's environment.
//
//   Settings settings = parse_settings("max_split_size_mb:512");  // throws UsageError if refused
//   EffectiveSettings now = effective_settings(look_up);  // what a program would start with
//   for (const Explanation& line : explain(now.settings)) say(line.option, line.effect);
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/allocator/version.h"
#include "headroom/base/bytes.h"

namespace headroom::allocator {

enum class Backend { native, cuda_malloc_async };

// PyTorch keeps sizes in 64 unsigned bits. Here a size too large for Bytes becomes the largest
// whole MiB that fits, so two such sizes are equal.
inline constexpr Bytes kLargestSize{((std::int64_t{1} << 43) - 1) << 20};

// Address space for one expandable segment: a share of the card's memory, or a number of GiB.
struct AddressReserve {
  double value = 0;
  bool is_share = true;
  bool operator==(const AddressReserve&) const = default;
};

struct ClassReserve {
  std::string name;
  AddressReserve reserve;
  bool operator==(const ClassReserve&) const = default;
};

// Every option, with PyTorch's defaults. Sizes are whole MiB. `options()` describes each one.
struct Settings {
  Backend backend = Backend::native;
  Bytes large_segment_size{20 << 20};
  std::optional<Bytes> max_split_size;  // std::nullopt: blocks of any size may be split
  Bytes max_non_split_rounding_size{20 << 20};
  double garbage_collection_threshold = 0;  // 0: off
  // Entry i applies to sizes from 2^i MiB up to the next entry's. The first entry also applies to
  // all smaller sizes, the last to all larger ones. 0 and 1 both mean plain rounding to 512 bytes.
  std::array<std::uint64_t, 16> roundup_power2_divisions{};
  bool expandable_segments = false;
  std::optional<AddressReserve> expandable_segments_reserve;  // std::nullopt: 9/8 of the card
  // For streams that a program has tagged in C++ with the name of a class.
  std::vector<ClassReserve> expandable_segments_reserve_by_class;  // sorted by name
  double per_process_memory_fraction = 1;
  bool throw_on_cudamalloc_oom = false;
  bool release_lock_on_cudamalloc = false;
  bool graph_capture_record_stream_reuse = false;
  // The rest configure pinned host memory, not device memory.
  bool pinned_use_cuda_host_register = false;
  std::uint64_t pinned_num_register_threads = 1;
  bool pinned_use_background_threads = false;
  Bytes pinned_reserve_segment_size{0};
  bool pinned_free_catch_all = false;
  std::optional<Bytes> pinned_max_round_threshold;
  std::optional<Bytes> pinned_max_cached_size;

  bool operator==(const Settings&) const = default;
};

// The settings of a program that starts with this text. Where PyTorch refuses the text (it fails
// while loading, or at its first CUDA call), throws UsageError with the option, the value and the
// allowed values.
[[nodiscard]] Settings parse_settings(std::string_view text,
                                      const Version& version = default_version());

// The same for two texts: PyTorch reads the options that all accelerators share and CUDA's own
// options separately, and possibly from different variables (see effective_settings).
[[nodiscard]] Settings parse_settings(std::string_view shared_text, std::string_view cuda_text,
                                      const Version& version = default_version());

// Changes settings while the program runs. First max_split_size_mb, roundup_power2_divisions and
// garbage_collection_threshold return to their defaults, and max_non_split_rounding_mb to
// large_segment_size_mb; all others stay. The text may name the backend but not change it. A
// refused text changes nothing (in PyTorch it leaves the part that was read before the error).
void apply(Settings& settings, std::string_view text, const Version& version = default_version());

// The options that differ from their defaults, as a text that parses back to the same settings.
[[nodiscard]] std::string to_string(const Settings& settings);

// The options that a text names, in its order, under their usual names ("cuda" for "hip").
struct NamedValue {
  std::string option;
  std::string value;
};
[[nodiscard]] std::vector<NamedValue> named_options(std::string_view text);
[[nodiscard]] bool names_option(std::string_view text, std::string_view option);

// ---- The environment ----

// Looks up an environment variable. Unset is empty; set to "" is a value.
using EnvironmentLookup = std::function<std::optional<std::string>(const std::string& name)>;

struct Source {
  std::optional<std::string> variable;  // std::nullopt: no variable is set, all options are default
  std::string text;
};

struct EffectiveSettings {
  Settings settings;
  Source source;
  bool caching = true;  // false: PYTORCH_NO_CUDA_MEMORY_CACHING is set and settings have no effect
  std::vector<std::string> notes;  // one sentence for each variable without its apparent effect
};

// PYTORCH_CUDA_ALLOC_CONF, if set (even to ""), hides PYTORCH_ALLOC_CONF completely. Throws
// UsageError with the variable's name if its text would be refused.
[[nodiscard]] EffectiveSettings effective_settings(const EnvironmentLookup& look_up);

// The value to set before a program starts: the user's text unchanged, then each recommended option
// that the user has not set and that PyTorch accepts after that text. Set it as
// PYTORCH_CUDA_ALLOC_CONF, which hides the other variables. Throws UsageError if the user's text
// would be refused.
[[nodiscard]] std::string merged_environment_value(std::string_view user_text,
                                                   std::string_view recommended_text);

// ---- In words ----

struct OptionInfo {
  std::string_view name;
  std::string_view allowed;                // completes "expected <name> to be ..."
  std::string_view example;                // an accepted value
  bool native_only;                        // backend:cudaMallocAsync ignores it
  std::string (*effect)(const Settings&);  // one sentence, where its value is not the default
  int since = 11;                          // the first minor version of PyTorch 2 that has it
};

// All options, in printing order.
[[nodiscard]] std::span<const OptionInfo> options();

struct Explanation {
  std::string option;
  std::string value;   // as in the text
  std::string effect;  // one sentence, for this value together with the other settings
};

// One explanation per option that is not at its default.
[[nodiscard]] std::vector<Explanation> explain(const Settings& settings);

struct Recommendation {
  std::string settings;  // "": change nothing
  std::string reason;
  std::string price;  // "" when nothing is recommended
};

// For a program whose tensor sizes change from step to step. The settings in `user_text` always
// win.
[[nodiscard]] Recommendation recommend(std::string_view user_text, std::optional<Bytes> card_total);
// "PYTORCH_CUDA_ALLOC_CONF=...", what is recommended for a program that Headroom starts. "" if the
// environment has settings already, or nothing is recommended.
[[nodiscard]] std::string recommended_variable(std::optional<Bytes> card_total);

}  // namespace headroom::allocator
