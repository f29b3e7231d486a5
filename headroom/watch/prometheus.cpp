#include "headroom/watch/prometheus.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "headroom/base/json.h"
#include "headroom/base/text.h"

namespace headroom::watch {
namespace {

void append_label_value(std::string& text, std::string_view value) {
  text += '"';
  for (const char c : value) {
    if (c == '\\' || c == '"') text += '\\';
    if (c == '\n') {
      text += "\\n";
    } else {
      text += c;
    }
  }
  text += '"';
}

void append_labels(std::string& text, const Labels& labels) {
  if (labels.empty()) return;
  char before = '{';
  for (const auto& [name, value] : labels) {
    text += before + name + '=';
    append_label_value(text, value);
    before = ',';
  }
  text += '}';
}

// The shortest form that reads back as the same number.
std::string number(double value) {
  return Json(value).dump();
}

std::string sample_name(const Family& family) {
  switch (family.kind) {
    case MetricKind::gauge:
      return family.name;
    case MetricKind::counter:
      return family.name + "_total";
    case MetricKind::info:
      return family.name + "_info";
  }
  return family.name;
}

const char* type_of(const Family& family, TextFormat format) {
  if (family.kind == MetricKind::counter) return "counter";
  return family.kind == MetricKind::info && format == TextFormat::openmetrics ? "info" : "gauge";
}

// The unit at the name's end; "" without one.
std::string_view unit_of(std::string_view name) {
  const std::string_view end = name.substr(name.rfind('_') + 1);
  for (const std::string_view unit : {"bytes", "seconds", "ratio", "celsius", "watts"})
    if (end == unit) return unit;
  return {};
}

// OpenMetrics names the family, the classic format its samples.
std::string heading(const Family& family, TextFormat format) {
  const bool open = format == TextFormat::openmetrics;
  const std::string name = open ? family.name : sample_name(family);
  std::string text = "# HELP " + name + " " + family.help + "\n# TYPE " + name + " " +
                     type_of(family, format) + "\n";
  const std::string_view unit = unit_of(family.name);
  if (open && !unit.empty()) text += "# UNIT " + name + " " + std::string(unit) + "\n";
  return text;
}

// ---- Formats that a client accepts

struct MediaRange {
  std::string type, version;
  double weight = 1;
};

MediaRange media_range(std::string_view text) {
  MediaRange range;
  for (const auto part : split(text, ';')) {
    const std::string word = lower(trim(part));
    if (range.type.empty()) {
      range.type = word;
    } else if (word.starts_with("q=")) {
      range.weight = std::clamp(to_number(word.substr(2)).value_or(0), 0.0, 1.0);
    } else if (word.starts_with("version=")) {
      range.version = word.substr(8);
      std::erase(range.version, '"');
    }
  }
  return range;
}

// The weight of the classic format; `exactness` of the range that gave it.
struct ClassicWeight {
  double weight = 0;
  int exactness = 0;
};

int exactness_for_classic(const MediaRange& range) {
  if (range.type == "text/plain" && (range.version.empty() || range.version == "0.0.4")) return 3;
  if (range.type == "text/*") return 2;
  return range.type == "*/*" ? 1 : 0;
}

}  // namespace

std::string prometheus_text(const Families& families, TextFormat format) {
  std::string text;
  for (const Family& family : families) {
    if (family.series.empty()) continue;
    text += heading(family, format);
    for (const Series& series : family.series) {
      text += sample_name(family);
      append_labels(text, series.labels);
      text += " " + number(series.value) + "\n";
    }
  }
  return format == TextFormat::openmetrics ? text + "# EOF\n" : text;
}

const char* content_type(TextFormat format) {
  return format == TextFormat::openmetrics
             ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
             : "text/plain; version=0.0.4; charset=utf-8";
}

TextFormat preferred_format(std::string_view accept) {
  double open = 0;
  ClassicWeight classic;
  for (const auto part : split(accept, ',')) {
    const MediaRange range = media_range(part);
    if (range.type == "application/openmetrics-text" &&
        (range.version.empty() || range.version == "1.0.0"))
      open = std::max(open, range.weight);
    if (const int exact = exactness_for_classic(range); exact > 0 && exact >= classic.exactness)
      classic = {exact > classic.exactness ? range.weight : std::max(classic.weight, range.weight),
                 exact};
  }
  return open > 0 && open >= classic.weight ? TextFormat::openmetrics : TextFormat::classic;
}

}  // namespace headroom::watch
