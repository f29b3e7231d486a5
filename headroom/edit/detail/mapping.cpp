#include "headroom/edit/detail/mapping.h"

#include "headroom/base/error.h"
#include "headroom/base/text.h"

namespace headroom::edit::detail {
namespace {

constexpr const char* kForms =
    "\"--flag=batch\", \"key=batch\", \"FILE:a.b=batch\" or \"env:NAME=batch\", each with batch or "
    "accumulation";

[[noreturn]] void refuse(const std::string& text, const std::string& to_try) {
  throw UsageError(expectation("--map", kForms, text, to_try));
}

Quantity quantity_of(const std::string& word, const std::string& text) {
  if (word == "batch") return Quantity::batch;
  if (word == "accumulation") return Quantity::accumulation;
  const std::string start = text.substr(0, text.rfind('='));
  std::string meant = nearest(word, {"batch", "accumulation"}).value_or("batch");
  if (word.starts_with("acc")) meant = "accumulation";
  refuse(text, "\"" + start + "=" + meant + "\"");
}

void read_place(Mapping& mapping, const std::string& place) {
  const std::size_t colon = place.rfind(':');
  mapping.name = place;
  if (place.starts_with("env:")) {
    mapping.form = Form::variable;
    mapping.name = place.substr(4);
  } else if (place.starts_with('-')) {
    mapping.form = Form::flag;
  } else if (colon != std::string::npos) {
    mapping.form = Form::file;
    mapping.file = place.substr(0, colon);
    mapping.name = place.substr(colon + 1);
  } else {
    mapping.form = Form::key;
    mapping.name = place.substr(std::min(place.find_first_not_of('+'), place.size()));
    mapping.plus = place.substr(0, place.size() - mapping.name.size());
  }
}

bool is_sound(const Mapping& mapping) {
  const std::string& name = mapping.name;
  if (name.empty() || name.find_first_of(" \t\n='\"") != std::string::npos) return false;
  if (mapping.form == Form::file)
    return !mapping.file.empty() && name.front() != '.' && name.back() != '.' &&
           name.find("..") == std::string::npos;
  if (mapping.form == Form::flag) return name.find_first_not_of('-') != std::string::npos;
  return mapping.plus.size() <= 2;
}

}  // namespace

std::string Mapping::place() const {
  if (form == Form::variable) return "env:" + name;
  return form == Form::file ? file.string() + ":" + name : name;
}

Mapping parse_mapping(const std::string& text) {
  const std::size_t equals = text.rfind('=');
  if (equals == std::string::npos) {
    const bool says_batch = !text.empty() && text.find("accum") == std::string::npos;
    refuse(text, text.empty() ? "" : "\"" + text + (says_batch ? "=batch\"" : "=accumulation\""));
  }
  Mapping mapping{.text = text, .name = {}, .plus = {}, .file = {}};
  mapping.quantity = quantity_of(text.substr(equals + 1), text);
  read_place(mapping, text.substr(0, equals));
  if (!is_sound(mapping)) refuse(text, "");
  return mapping;
}

}  // namespace headroom::edit::detail
