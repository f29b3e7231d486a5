#include "headroom/trace/event.h"

#include <array>

#include "headroom/base/error.h"

namespace headroom::trace {
namespace {

constexpr std::array<std::string_view, kKinds> kKindNames = {
    "alloc",        "free_requested", "free_completed",  "segment_alloc",
    "segment_free", "segment_map",    "segment_unmap",   "oom",
    "mark",         "record_stream",  "complete_events", "empty_cache",
    "reset_peaks",  "settings",       "begin_pool",      "end_pool",
    "release_pool"};
constexpr std::array<std::string_view, kCategories> kCategoryNames = {
    "unknown",   "parameter",  "buffer",    "input",    "gradient",
    "optimizer", "activation", "temporary", "workspace"};
constexpr std::array<std::string_view, kPhases> kPhaseNames = {
    "unknown", "init", "forward", "backward", "optimizer", "evaluation", "data"};

template <typename Value, std::size_t n>
std::string_view name_of(Value value, const std::array<std::string_view, n>& names) {
  const auto number = static_cast<std::size_t>(value);
  if (number >= n)
    throw InternalError(
        expectation("trace", "a number below " + std::to_string(n), std::to_string(number)));
  return names[number];
}

}  // namespace

std::string_view to_string(Kind kind) {
  return name_of(kind, kKindNames);
}

std::string_view to_string(Category category) {
  return name_of(category, kCategoryNames);
}

std::string_view to_string(Phase phase) {
  return name_of(phase, kPhaseNames);
}

Names::Names() {
  number("");
}

Names::Names(const Names& other) : texts_(other.texts_) {
  for (Name name = 0; name < texts_.size(); ++name) numbers_.emplace(texts_[name], name);
}

Names& Names::operator=(const Names& other) {
  return *this = Names(other);
}

Name Names::number(std::string_view text) {
  if (const auto known = numbers_.find(text); known != numbers_.end()) return known->second;
  const auto name = static_cast<Name>(texts_.size());
  numbers_.emplace(texts_.emplace_back(text), name);
  return name;
}

std::string_view Names::text(Name name) const {
  if (name >= texts_.size())
    throw InternalError(expectation("trace", "a name below " + std::to_string(texts_.size()),
                                    std::to_string(name)));
  return texts_[name];
}

}  // namespace headroom::trace
