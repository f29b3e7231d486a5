#include "headroom/profile/detail/profile_order.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <tuple>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/base/text.h"

namespace headroom::profile {
namespace {

using detail::Figure;
using detail::Unit;

double count_of(Bytes bytes) {
  return static_cast<double>(bytes.count);
}
constexpr std::array<Figure, 10> kFigures{
    {{"calls", "calls", Unit::count,
      [](const ProfileRow& row) { return static_cast<double>(row.calls); }, Figure::kAlways},
     {"self_bytes", "self mem", Unit::bytes,
      [](const ProfileRow& row) { return count_of(row.self_bytes); }, Figure::kAlways, true},
     {"total_bytes", "total mem", Unit::bytes,
      [](const ProfileRow& row) { return count_of(row.total_bytes); }, Figure::kAlways, true},
     {"self_kept_bytes", "self kept", Unit::bytes,
      [](const ProfileRow& row) { return count_of(row.self_kept); }, 1},
     {"self_cpu_bytes", "self CPU mem", Unit::bytes,
      [](const ProfileRow& row) { return count_of(row.self_cpu_bytes); }, 2},
     {"cpu_bytes", "CPU mem", Unit::bytes,
      [](const ProfileRow& row) { return count_of(row.cpu_bytes); }, 4},
     {"self_cpu_s", "self CPU", Unit::seconds, [](const ProfileRow& row) { return row.self_cpu_s; },
      3},
     {"cpu_s", "CPU time", Unit::seconds, [](const ProfileRow& row) { return row.cpu_s; },
      Figure::kAlways},
     {"self_device_s", "self device", Unit::seconds,
      [](const ProfileRow& row) { return row.self_device_s.value_or(0); }, 1},
     {"device_s", "device time", Unit::seconds,
      [](const ProfileRow& row) { return row.device_s.value_or(0); }, Figure::kAlways, true}}};
constexpr std::string_view kByName = "name";

// PyTorch's names, after "cuda" became "device".
constexpr std::pair<std::string_view, std::string_view> kSynonyms[] = {
    {"self_device_memory_usage", "self_bytes"},
    {"device_memory_usage", "total_bytes"},
    {"self_cpu_memory_usage", "self_cpu_bytes"},
    {"cpu_memory_usage", "cpu_bytes"},
    {"self_device_time_total", "self_device_s"},
    {"device_time_total", "device_s"},
    {"self_cpu_time_total", "self_cpu_s"},
    {"cpu_time_total", "cpu_s"},
    {"count", "calls"},
    {"key", kByName}};

bool is_cpu_time(const Figure& figure) {
  return figure.key == "cpu_s" || figure.key == "self_cpu_s";
}

// The key, then the others, the number of calls last. CPU times break no ties: they differ from run
// to run.
std::vector<Figure> keys_from(const std::string& sort_by) {
  const std::string key = detail::own_name(sort_by);
  if (key == kByName) return {};
  std::vector<Figure> keys(kFigures.begin(), kFigures.end());
  std::rotate(keys.begin(), keys.begin() + 1, keys.end());
  const auto first =
      std::find_if(keys.begin(), keys.end(), [&](const Figure& each) { return each.key == key; });
  if (first == keys.end())
    throw UsageError(expectation("sort_by", "one of " + join(sort_keys(), ", "), sort_by,
                                 nearest(sort_by, sort_keys()).value_or("self_bytes")));
  std::rotate(keys.begin(), first, first + 1);
  keys.erase(std::remove_if(keys.begin() + 1, keys.end(), &is_cpu_time), keys.end());
  return keys;
}

}  // namespace

std::vector<std::string> sort_keys() {
  std::vector<std::string> names;
  for (const Figure& figure : kFigures) names.emplace_back(figure.key);
  names.emplace_back(kByName);
  return names;
}

std::span<const Figure> detail::figures() {
  return kFigures;
}

std::string detail::own_name(std::string key) {
  if (const std::size_t cuda = key.find("cuda"); cuda != std::string::npos)
    key.replace(cuda, 4, "device");
  for (const auto& [theirs, ours] : kSynonyms)
    if (key == theirs) return std::string(ours);
  return key;
}

void detail::sort(std::vector<ProfileRow>& rows, const std::string& sort_by) {
  const std::vector<Figure> keys = keys_from(sort_by);
  std::stable_sort(rows.begin(), rows.end(), [&](const ProfileRow& a, const ProfileRow& b) {
    for (const Figure& each : keys)
      if (each.of(a) != each.of(b)) return each.of(a) > each.of(b);
    return std::tie(a.name, a.shapes) < std::tie(b.name, b.shapes);
  });
}

}  // namespace headroom::profile
