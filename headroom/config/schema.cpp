#include "headroom/config/schema.h"

#include <algorithm>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/base/text.h"

namespace headroom::config {
namespace {

bool is_one_of(std::string_view name, const std::vector<std::string>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// "lora_r" of "model.lora_r"
std::string last_part(std::string_view name) {
  return std::string(name.substr(name.rfind('.') + 1));
}

}  // namespace

Schema::Schema(std::vector<Key> keys, std::vector<std::string> sections,
               std::vector<std::string> groups)
    : keys_(std::move(keys)), sections_(std::move(sections)), groups_(std::move(groups)) {}

std::string_view Schema::without_section(std::string_view name) const {
  for (const std::string& section : sections_)
    if (name.starts_with(section + ".")) return name.substr(section.size() + 1);
  return name;
}

const Key* Schema::find(std::string_view name) const {
  std::string_view plain = without_section(name);
  for (const std::string& group : groups_)
    if (plain == group + ".name") plain = group;
  for (const Key& key : keys_)
    if (key.name == plain) return &key;
  return nullptr;
}

bool Schema::is_key(std::string_view name) const {
  return find(name) != nullptr;
}

const Key& Schema::key(std::string_view name) const {
  if (const Key* const key = find(name)) return *key;
  const std::string shown = without_controls(std::string(beginning(name, 100)));
  throw UsageError(expectation("config", "a key that --help-keys lists", shown,
                               suggestion(without_section(shown))));
}

bool Schema::is_section(std::string_view name) const {
  return is_one_of(name, sections_) || is_one_of(without_section(name), groups_);
}

// A key of a group is also found without the group's name.
std::string Schema::suggestion(std::string_view name) const {
  std::vector<std::string> names, last_parts;
  for (const Key& key : keys_) {
    if (last_part(key.name) == name || is_one_of(name, key.elsewhere)) return key.name;
    names.push_back(key.name);
    last_parts.push_back(last_part(key.name));
  }
  if (const auto near = nearest(name, names)) return *near;
  const auto near = nearest(last_part(name), last_parts);
  if (!near) return {};
  const auto at = std::find(last_parts.begin(), last_parts.end(), *near) - last_parts.begin();
  return names[static_cast<std::size_t>(at)];
}

}  // namespace headroom::config
