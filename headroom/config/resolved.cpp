#include "headroom/config/resolved.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "headroom/base/error.h"
#include "headroom/base/text.h"
#include "headroom/config/detail/value.h"

namespace headroom::config {

// ---- Values ----

const Key& Resolved::asked(std::string_view name, std::initializer_list<Kind> kinds) const {
  const Key& key = schema_->key(name);
  if (std::find(kinds.begin(), kinds.end(), key.kind) == kinds.end())
    throw InternalError("config", "expected a getter of the kind of " + key.name);
  return key;
}

std::optional<std::string> Resolved::value(const Key& key) const {
  const auto found = given_.find(key.name);
  if (found != given_.end()) return found->second.text;
  return key.computed ? key.computed(*this) : key.usual;
}

std::string Resolved::present(const Key& key) const {
  const std::optional<std::string> text = value(key);
  if (!text) throw InternalError("config", "expected a value of " + key.name + ", received none");
  return *text;
}

std::string Resolved::text(std::string_view key) const {
  return present(asked(key, {Kind::text, Kind::choice}));
}
std::int64_t Resolved::whole(std::string_view key) const {
  return to_integer(present(asked(key, {Kind::whole}))).value();
}
double Resolved::number(std::string_view key) const {
  return to_number(present(asked(key, {Kind::number, Kind::whole, Kind::share}))).value();
}
bool Resolved::yes(std::string_view key) const {
  return present(asked(key, {Kind::flag})) == "true";
}
ShareOrBytes Resolved::share_or_bytes(std::string_view key) const {
  return detail::share_or_bytes(present(asked(key, {Kind::share_or_bytes})));
}
std::vector<std::string> Resolved::words(std::string_view key) const {
  return detail::words(present(asked(key, {Kind::words})));
}
std::vector<ModelVariant> Resolved::model_variants(std::string_view name) const {
  const std::optional<std::string> text = value(asked(name, {Kind::variants}));
  return text ? model_variants_from(parse_json(*text, name)) : std::vector<ModelVariant>{};
}

std::optional<std::string> Resolved::optional_text(std::string_view key) const {
  return value(asked(key, {Kind::text, Kind::choice}));
}
std::optional<std::int64_t> Resolved::optional_whole(std::string_view key) const {
  const std::optional<std::string> text = value(asked(key, {Kind::whole}));
  return text ? to_integer(*text) : std::nullopt;
}
std::optional<double> Resolved::optional_number(std::string_view key) const {
  const std::optional<std::string> text =
      value(asked(key, {Kind::number, Kind::whole, Kind::share}));
  return text ? to_number(*text) : std::nullopt;
}
std::optional<std::int64_t> Resolved::number_in(std::string_view key) const {
  const std::string text = present(asked(key, {Kind::choice}));
  return to_integer(std::string_view(text).substr(text.find(':') + 1));
}

// ---- Origins ----

std::string Resolved::origin(std::string_view key) const {
  const auto found = given_.find(schema_->key(key).name);
  return found == given_.end() ? "default" : found->second.origin;
}

bool Resolved::is_given(std::string_view key) const {
  return given_.count(schema_->key(key).name) > 0;
}

std::vector<Entry> Resolved::entries() const {
  std::vector<Entry> all;
  for (const Key& key : schema_->keys()) all.push_back({key.name, value(key), origin(key.name)});
  return all;
}

void Resolved::set(std::string_view name, const Json& given, const std::string& origin) {
  const Key& key = schema_->key(name);
  std::optional<std::string> text;
  try {
    text = detail::checked(key, given);
  } catch (const UsageError& error) {
    throw UsageError("config", key.name + ": " + error.complaint().words);
  }
  if (text)
    given_.insert_or_assign(key.name, Given{*text, origin});
  else
    given_.erase(key.name);
}

// ---- Documents ----

std::string Resolved::to_yaml() const {
  std::string out;
  for (const Key& key : schema_->keys()) {
    const std::optional<std::string> text = value(key);
    const bool quotes = key.kind == Kind::text || key.kind == Kind::words;
    out += (is_given(key.name) ? "" : "# ") + key.name + ":";
    if (text) out += " " + (quotes ? to_line(Json(*text)) : *text);
    out += "\n";
  }
  return out;
}

Json Resolved::given() const {
  Json json = Json::object();
  for (const auto& [key, one] : given_) json[key] = {one.text, one.origin};
  return json;
}

Resolved Resolved::restored(const Schema& schema, const Json& given) {
  Resolved config(schema);
  for (const auto& [key, one] : given.items())
    config.given_.emplace(key, Given{one.at(0).get<std::string>(), one.at(1).get<std::string>()});
  return config;
}

Json Resolved::to_json() const {
  Json json = Json::object();
  for (const Key& key : schema_->keys()) {
    const std::optional<std::string> text = value(key);
    json[key.name] = text ? detail::json_of(key, *text) : Json();
  }
  return json;
}

}  // namespace headroom::config
