#include <algorithm>

#include "headroom/allocator/settings.h"
#include "headroom/base/error.h"
#include "headroom/base/file.h"

namespace headroom::allocator {
namespace {

constexpr char kCuda[] = "PYTORCH_CUDA_ALLOC_CONF";
constexpr char kHip[] = "PYTORCH_HIP_ALLOC_CONF";
constexpr char kCommon[] = "PYTORCH_ALLOC_CONF";

Source first_set(const EnvironmentLookup& look_up, std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (auto text = look_up(name)) return {name, *text};
  return {};
}

std::string is_set(const Source& source) {
  return *source.variable + " is set" + (source.text.empty() ? " (to nothing)" : "");
}

// In a CUDA build of 2.11, only one of the two readers looks at the HIP variable.
void note_on_hip(const Source& shared, const Source& cuda, std::vector<std::string>& notes) {
  notes.push_back(
      "PYTORCH_HIP_ALLOC_CONF is read for the options that all accelerators share, but not for "
      "CUDA's own (backend, per_process_memory_fraction, release_lock_on_cudamalloc, ...); move "
      "its text to PYTORCH_ALLOC_CONF");
  if (cuda.variable)
    notes.push_back("PYTORCH_ALLOC_CONF is read for CUDA's own options only, because " +
                    is_set(shared));
}

void note_on_ignored(const EnvironmentLookup& look_up, const Source& used,
                     std::vector<std::string>& notes) {
  for (const char* name : {kHip, kCommon})
    if (used.variable != name && look_up(name))
      notes.push_back(std::string(name) + " is ignored as a whole, because " + is_set(used));
}

bool is_accepted(const std::string& text) {
  try {
    static_cast<void>(parse_settings(text));
    return true;
  } catch (const UsageError&) {
    return false;
  }
}

Settings settings_of(const Source& shared, const Source& cuda) {
  const Source* reading = &shared;
  try {
    static_cast<void>(parse_settings(shared.text, ""));
    reading = &cuda;
    return parse_settings(shared.text, cuda.text);
  } catch (const UsageError& refusal) {
    throw UsageError(reading->variable.value_or("") + ": " + refusal.what());
  }
}

}  // namespace

EffectiveSettings effective_settings(const EnvironmentLookup& look_up) {
  const Source shared = first_set(look_up, {kCuda, kHip, kCommon});
  const Source cuda = first_set(look_up, {kCuda, kCommon});
  EffectiveSettings result;
  result.source = shared;
  result.settings = settings_of(shared, cuda);
  if (shared.variable == kHip) {
    note_on_hip(shared, cuda, result.notes);
  } else if (shared.variable) {
    note_on_ignored(look_up, shared, result.notes);
  }
  for (const char* name : {"PYTORCH_NO_CUDA_MEMORY_CACHING", "PYTORCH_NO_HIP_MEMORY_CACHING"}) {
    const auto value = look_up(name);
    if (!value) continue;
    if (*value == "1") result.caching = false;
    result.notes.push_back(*value == "1"
                               ? std::string(name) +
                                     "=1: every request goes to cudaMalloc and back, and no "
                                     "other setting of the allocator has an effect"
                               : std::string(name) + " does nothing unless it is 1");
  }
  return result;
}

std::string merged_environment_value(std::string_view user_text,
                                     std::string_view recommended_text) {
  static_cast<void>(parse_settings(user_text));  // throws if the text would be refused
  std::string merged(user_text);
  for (const NamedValue& ours : named_options(recommended_text)) {
    if (names_option(user_text, ours.option)) continue;
    // An empty text, and one that ends with a comma, take no comma.
    for (const char* joint : {",", ""}) {
      const std::string longer = merged + joint + ours.option + ":" + ours.value;
      if (!is_accepted(longer)) continue;
      merged = longer;
      break;
    }
  }
  return merged;
}

std::string recommended_variable(std::optional<Bytes> card_total) {
  for (const char* name : {kCuda, kCommon, kHip})
    if (environment(name)) return "";
  const std::string settings = recommend("", card_total).settings;
  return settings.empty() ? "" : std::string(kCuda) + "=" + settings;
}

}  // namespace headroom::allocator
