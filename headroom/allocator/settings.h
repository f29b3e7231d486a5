// What PyTorch 2.11's CUDA allocator is told through PYTORCH_CUDA_ALLOC_CONF, read as it reads it.
//
// The same texts are accepted, the same refused, with the same values, odd ones included: "512GB"
// is 512 MiB, because 2.11 stops at the first letter; the word between option and value is never
// looked at; a key it does not know is refused. Two things are left to PyTorch, which alone can
// know them: cudaMallocAsync needs a driver of CUDA 11.4 or newer, expandable segments one that
// maps memory. Pure functions over values: any thread, no GPU, and the environment of this process
// is neither read nor changed.
//
//   Settings settings = parse_settings("max_split_size_mb:512");  // UsageError where 2.11 refuses
//   EffectiveSettings now = effective_settings(look_up);  // what a program would start with
//   for (const Explanation& line : explain(now.settings)) say(line.option, line.effect);
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/base/bytes.h"

namespace headroom::allocator {

enum class Backend { native, cuda_malloc_async };

// 2.11 counts sizes in 64 bits without a sign; here, whatever is beyond Bytes becomes the largest
// whole MiB in it, and two such sizes are equal.
inline constexpr Bytes kLargestSize{((std::int64_t{1} << 43) - 1) << 20};

// Every option, with 2.11's defaults. Sizes are whole MiB. `options()` says what each one does.
struct Settings {
  Backend backend = Backend::native;
  Bytes large_segment_size{20 << 20};
  std::optional<Bytes> max_split_size;  // nothing: blocks of any size may be split
  Bytes max_non_split_rounding_size{20 << 20};
  double garbage_collection_threshold = 0;  // 0: off
  // Entry i is for sizes from 2^i MiB up to the next entry's, the first for all below it too, the
  // last for all above. 0 and 1 are both plain rounding to 512 bytes.
  std::array<std::uint64_t, 16> roundup_power2_divisions{};
  bool expandable_segments = false;
  double per_process_memory_fraction = 1;
  bool release_lock_on_cudamalloc = false;
  bool graph_capture_record_stream_reuse = false;
  // From here on: pinned host memory, not device memory.
  bool pinned_use_cuda_host_register = false;
  std::uint64_t pinned_num_register_threads = 1;
  bool pinned_use_background_threads = false;
  Bytes pinned_reserve_segment_size{0};

  bool operator==(const Settings&) const = default;
};

// What a program gets that starts with this text. Throws UsageError naming option, value and what
// is allowed where 2.11 refuses (it then dies while loading, or at its first CUDA call).
[[nodiscard]] Settings parse_settings(std::string_view text);

// The same for two texts: 2.11 has a reader for the options that all accelerators share and one for
// CUDA's own, and they may look at different variables (see effective_settings).
[[nodiscard]] Settings parse_settings(std::string_view shared_text, std::string_view cuda_text);

// A change while the program runs. First max_split_size_mb, roundup_power2_divisions and
// garbage_collection_threshold go back to their defaults, and max_non_split_rounding_mb to
// large_segment_size_mb; all others stay. The backend can be named but not changed. A text that is
// refused changes nothing (in 2.11 it leaves whatever it had read by then).
void apply(Settings& settings, std::string_view text);

// The options that differ from their defaults, in a text that parses back to the same settings.
[[nodiscard]] std::string to_string(const Settings& settings);

// The options a text names, in its order, under their usual names ("cuda" for "hip").
struct NamedValue {
  std::string option;
  std::string value;
};
[[nodiscard]] std::vector<NamedValue> named_options(std::string_view text);

// ---- The environment ----

// How a variable is looked up: nothing when it is not set, which is not the same as empty.
using EnvironmentLookup = std::function<std::optional<std::string>(const std::string& name)>;

struct Source {
  std::optional<std::string> variable;  // nothing: no variable is set, all is default
  std::string text;
};

struct EffectiveSettings {
  Settings settings;
  Source source;
  bool caching = true;             // false: PYTORCH_NO_CUDA_MEMORY_CACHING, settings do nothing
  std::vector<std::string> notes;  // one sentence for each variable that does not do what it seems
};

// PYTORCH_CUDA_ALLOC_CONF, if set (even to nothing), hides PYTORCH_ALLOC_CONF as a whole.
// Throws UsageError naming the variable if its text would be refused.
[[nodiscard]] EffectiveSettings effective_settings(const EnvironmentLookup& look_up);

// What to set before a program starts: the user's text as it stands, then each recommended option
// he has not named himself and that can stand beside his. Set it as PYTORCH_CUDA_ALLOC_CONF, which
// hides the other variables. Throws UsageError if the user's text would be refused.
[[nodiscard]] std::string merged_environment_value(std::string_view user_text,
                                                   std::string_view recommended_text);

// ---- In words ----

struct OptionInfo {
  std::string_view name;
  std::string_view allowed;        // completes "expected <name> to be ..."
  std::string_view default_value;  // as a person would say it: "unlimited", "off"
  std::string_view example;        // a value that is accepted
  std::string_view effect;
  std::string_view cost;
};

// All options, in the order in which they are printed.
[[nodiscard]] const std::vector<OptionInfo>& options();

struct Explanation {
  std::string option;
  std::string value;   // as in the text, or OptionInfo::default_value
  std::string effect;  // one sentence, for this value and beside the other settings
  bool is_default = true;
};

// One for each option, defaults included.
[[nodiscard]] std::vector<Explanation> explain(const Settings& settings);
[[nodiscard]] std::vector<Explanation> explain(std::string_view text);

// What is known about a program and its card; leave out what is not.
struct Facts {
  // What the user has set himself; it always wins.
  std::string user_text = {};
  std::optional<Bytes> card_total = {};
  // Sizes change from step to step.
  bool variable_lengths = false;
  // At the peak: reserved but not allocated, as a part of reserved.
  double reserved_unused_share = 0;
  // The driver can map memory piecewise; nothing: take it that it can.
  std::optional<bool> maps_memory = {};
  bool cuda_graphs = false;
  // CUDA tensors go to other processes (IPC).
  bool shares_tensors = false;
};

struct Recommendation {
  std::string settings;  // "": leave all as it is
  std::string reason;
  std::string price;  // "" when nothing is recommended
};

[[nodiscard]] Recommendation recommend(const Facts& facts);

}  // namespace headroom::allocator
