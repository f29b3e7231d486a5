// Reads the sources of a configuration, one over the other.
#include <nlohmann/json.hpp>

#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/base/text.h"
#include "headroom/config/detail/yaml.h"
#include "headroom/config/presets.h"
#include "headroom/config/resolved.h"

namespace headroom::config {
namespace {

void apply_preset(Resolved& config, const Schema& schema, const std::string& name) {
  const std::string source = "preset " + name;
  detail::read_yaml(schema, preset(name), source,
                    [&](const std::string& key, const Json& value, const std::string&) {
                      config.set(key, value, source);
                    });
}

void apply_file(Resolved& config, const Schema& schema, const std::filesystem::path& path) {
  detail::read_yaml(schema, read_input(path), without_controls(path.string()),
                    [&](const std::string& key, const Json& value, const std::string& place) {
                      config.set(key, value, place);
                    });
}

// Only keys that take a list read their value as YAML: `out=[1]` is a folder's name.
Json value_of_override(const Key& key, std::string_view text) {
  const bool takes_list = key.kind == Kind::words || key.kind == Kind::variants;
  if (takes_list && trim(text).starts_with('[')) return detail::read_value(text);
  return std::string(text);
}

void apply_override(Resolved& config, const Schema& schema, const std::string& text) {
  const std::size_t at = text.find('=');
  const std::string name(trim(std::string_view(text).substr(0, at)));
  const Key& key = schema.key(name);
  if (at == std::string::npos)
    throw UsageError(
        expectation("config", "key=value", name, name + "=" + key.usual.value_or("...")));
  config.set(name, value_of_override(key, std::string_view(text).substr(at + 1)), "command line");
}

}  // namespace

Resolved resolve(const Schema& schema, const Sources& sources) {
  Resolved config(schema);
  apply_preset(config, schema, sources.preset);
  if (sources.base) apply_file(config, schema, *sources.base);
  if (sources.file) apply_file(config, schema, *sources.file);
  for (const std::string& text : sources.overrides) apply_override(config, schema, text);
  return config;
}

}  // namespace headroom::config
