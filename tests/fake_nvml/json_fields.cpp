// The checked readers of json_fields.h.
#include "json_fields.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string_view>
#include <utility>

namespace fake_nvml {
namespace {

using Json = nlohmann::json;

std::optional<double> bytes_in_unit(std::string_view unit) {
  constexpr std::pair<std::string_view, double> kUnits[] = {
      {"", 1.0},    {"B", 1.0},      {"KB", 1e3},        {"MB", 1e6},     {"GB", 1e9},
      {"TB", 1e12}, {"KiB", 1024.0}, {"MiB", 1048576.0}, {"GiB", 0x1p30}, {"TiB", 0x1p40},
  };
  for (const auto& [name, bytes] : kUnits) {
    if (name == unit) return bytes;
  }
  return std::nullopt;
}

std::optional<std::uint64_t> parse_bytes(const std::string& text) {
  char* end = nullptr;
  const double amount = std::strtod(text.c_str(), &end);
  if (end == text.c_str() || !(amount >= 0)) return std::nullopt;
  std::string_view unit(end);
  unit.remove_prefix(std::min(unit.find_first_not_of(' '), unit.size()));
  const std::optional<double> scale = bytes_in_unit(unit);
  if (!scale || amount * *scale >= 0x1p63) return std::nullopt;
  return static_cast<std::uint64_t>(std::llround(amount * *scale));
}

}  // namespace

Fields::Fields(const Json& object, std::string where, std::initializer_list<const char*> known)
    : object_(object), where_(std::move(where)) {
  const std::string place = where_.empty() ? "top level" : where_;
  if (!object_.is_object()) throw BadState(place + ": expected an object");
  for (const auto& [key, value] : object_.items()) {
    const bool expected = std::any_of(known.begin(), known.end(),
                                      [&key = key](const char* name) { return key == name; });
    if (!expected) throw BadState(place + ": unknown key \"" + key + "\"");
  }
}

const Json* Fields::find(const char* key) const {
  const auto found = object_.find(key);
  return found == object_.end() ? nullptr : &*found;
}

std::string Fields::text(const char* key, const std::string& fallback) const {
  const Json* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_string()) refuse(key, "text");
  return value->get<std::string>();
}

bool Fields::flag(const char* key, bool fallback) const {
  const Json* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) refuse(key, "true or false");
  return value->get<bool>();
}

std::uint64_t Fields::number(const char* key, std::uint64_t fallback, std::uint64_t most) const {
  const Json* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_number_unsigned() || value->get<std::uint64_t>() > most) {
    refuse(key, "a whole number from 0 to " + std::to_string(most));
  }
  return value->get<std::uint64_t>();
}

unsigned Fields::number32(const char* key, unsigned fallback) const {
  return static_cast<unsigned>(number(key, fallback, std::numeric_limits<unsigned>::max()));
}

std::optional<unsigned> Fields::measurement(const char* key,
                                            std::optional<unsigned> fallback) const {
  const Json* value = find(key);
  if (value == nullptr) return fallback;
  if (value->is_null()) return std::nullopt;
  return number32(key, 0);
}

std::optional<std::uint64_t> Fields::bytes(const char* key,
                                           std::optional<std::uint64_t> fallback) const {
  const Json* value = find(key);
  if (value == nullptr) return fallback;
  if (value->is_null()) return std::nullopt;
  if (value->is_number_unsigned()) return value->get<std::uint64_t>();
  if (value->is_string()) {
    if (const auto bytes = parse_bytes(value->get<std::string>())) return bytes;
  }
  refuse(key, "bytes such as 1048576 or \"24GiB\"");
}

const Json& Fields::list(const char* key) const {
  static const Json& empty = *new Json(Json::array());
  const Json* value = find(key);
  if (value == nullptr) return empty;
  if (!value->is_array()) refuse(key, "an array");
  return *value;
}

std::string Fields::place(const char* key, std::size_t index) const {
  return place(key) + "[" + std::to_string(index) + "]";
}

std::string Fields::place(const char* key) const {
  return where_.empty() ? key : where_ + "." + key;
}

void Fields::refuse(const char* key, const std::string& expected) const {
  const Json* value = find(key);
  throw BadState(place(key) + ": expected " + expected + ", received " +
                 (value == nullptr ? "nothing" : value->dump()));
}

}  // namespace fake_nvml
