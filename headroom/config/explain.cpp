#include "headroom/config/explain.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "headroom/base/wrap.h"
#include "headroom/config/resolved.h"

namespace headroom::config {
namespace {

struct Row {
  std::string key, value, origin;
};

// A longer value shifts its own line only.
constexpr std::size_t kWidestColumn = 32;

std::size_t column(const std::vector<Row>& rows, std::string Row::*member) {
  std::size_t widest = 0;
  for (const Row& row : rows)
    if (cells(row.*member) <= kWidestColumn) widest = std::max(widest, cells(row.*member));
  return widest + 2;
}

std::string padded(const std::string& text, std::size_t width) {
  const std::size_t blanks = cells(text) + 2 > width ? 2 : width - cells(text);
  return text + std::string(blanks, ' ');
}

}  // namespace

std::string explain(const Resolved& config) {
  std::vector<Row> rows{{"key", "value", "origin"}};
  for (const Entry& entry : config.entries())
    rows.push_back({entry.key, entry.value.value_or("-"), entry.origin});
  const std::size_t keys = column(rows, &Row::key), values = column(rows, &Row::value);
  std::string out;
  for (const Row& row : rows)
    out += padded(row.key, keys) + padded(row.value, values) + row.origin + "\n";
  return out;
}

Json explain_json(const Resolved& config) {
  const Json values = config.to_json();
  Json keys = Json::array();
  for (const Entry& entry : config.entries())
    keys.push_back({{"key", entry.key}, {"value", values.at(entry.key)}, {"origin", entry.origin}});
  return {{"keys", keys}};
}

}  // namespace headroom::config
