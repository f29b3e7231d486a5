#include "headroom/memory/detail/profile_order.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <tuple>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/base/text.h"

namespace headroom::memory {
namespace {

using Figure = double (*)(const ProfileRow&);
struct SortKey {
  std::string_view name;
  Figure figure;
};
double count_of(Bytes bytes) {
  return static_cast<double>(bytes.count);
}
constexpr std::array<SortKey, 10> kSortKeys{
    {{"self_bytes", [](const ProfileRow& row) { return count_of(row.self_bytes); }},
     {"total_bytes", [](const ProfileRow& row) { return count_of(row.total_bytes); }},
     {"self_kept_bytes", [](const ProfileRow& row) { return count_of(row.self_kept); }},
     {"self_cpu_bytes", [](const ProfileRow& row) { return count_of(row.self_cpu_bytes); }},
     {"cpu_bytes", [](const ProfileRow& row) { return count_of(row.cpu_bytes); }},
     {"self_device_s", [](const ProfileRow& row) { return row.self_device_s.value_or(0); }},
     {"device_s", [](const ProfileRow& row) { return row.device_s.value_or(0); }},
     {"self_cpu_s", [](const ProfileRow& row) { return row.self_cpu_s; }},
     {"cpu_s", [](const ProfileRow& row) { return row.cpu_s; }},
     {"calls", [](const ProfileRow& row) { return static_cast<double>(row.calls); }}}};
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

bool is_cpu_time(const SortKey& key) {
  return key.name == "cpu_s" || key.name == "self_cpu_s";
}

// The key, then the others. CPU times break no ties: they differ from run to run.
std::vector<SortKey> keys_from(const std::string& sort_by) {
  const std::string key = detail::own_name(sort_by);
  std::vector<SortKey> keys(kSortKeys.begin(), kSortKeys.end());
  if (key == kByName) return {};
  const auto first =
      std::find_if(keys.begin(), keys.end(), [&](const SortKey& each) { return each.name == key; });
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
  for (const SortKey& key : kSortKeys) names.emplace_back(key.name);
  names.emplace_back(kByName);
  return names;
}

std::string detail::own_name(std::string key) {
  if (const std::size_t cuda = key.find("cuda"); cuda != std::string::npos)
    key.replace(cuda, 4, "device");
  for (const auto& [theirs, ours] : kSynonyms)
    if (key == theirs) return std::string(ours);
  return key;
}

void detail::sort(std::vector<ProfileRow>& rows, const std::string& sort_by) {
  const std::vector<SortKey> keys = keys_from(sort_by);
  std::stable_sort(rows.begin(), rows.end(), [&](const ProfileRow& a, const ProfileRow& b) {
    for (const SortKey& each : keys)
      if (each.figure(a) != each.figure(b)) return each.figure(a) > each.figure(b);
    return std::tie(a.name, a.shapes) < std::tie(b.name, b.shapes);
  });
}

}  // namespace headroom::memory
