#include "headroom/memory/profile.h"

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/base/output_file.h"
#include "headroom/base/text.h"

namespace headroom::memory {
namespace {

using trace::Name;

double seconds_of(const Call& call) {
  return static_cast<double>(call.end_ns - call.start_ns) / 1e9;
}

// The figures of one call: its own, and with its children's.
struct Spent {
  double cpu_s = 0, device_s = 0;
  Bytes device, cpu;
};

// A call's own time is its duration less that of the calls it made.
std::vector<Spent> own_of(const Profile& profile) {
  std::vector<Spent> own;
  own.reserve(profile.calls.size());
  for (const Call& call : profile.calls) {
    own.push_back({seconds_of(call), call.device_s, call.device, call.cpu});
    if (call.parent >= 0) own[static_cast<std::size_t>(call.parent)].cpu_s -= seconds_of(call);
  }
  return own;
}

// Parents come before their children, so one pass from the end adds everything up.
std::vector<Spent> totals_of(const Profile& profile) {
  std::vector<Spent> totals;
  totals.reserve(profile.calls.size());
  for (const Call& call : profile.calls)
    totals.push_back({seconds_of(call), call.device_s, call.device, call.cpu});
  for (std::size_t i = totals.size(); i-- > 0;) {
    const std::int32_t parent = profile.calls[i].parent;
    if (parent < 0) continue;
    Spent& of_parent = totals[static_cast<std::size_t>(parent)];
    of_parent.device_s += totals[i].device_s;
    of_parent.device += totals[i].device;
    of_parent.cpu += totals[i].cpu;
  }
  return totals;
}

// For each call; memory without a call of its own is none.
std::vector<std::size_t> calls_made(const std::vector<Call>& calls) {
  std::vector<std::size_t> made(calls.size());
  for (const Call& call : calls)
    if (call.parent >= 0 && call.kind != CallKind::allocation)
      ++made[static_cast<std::size_t>(call.parent)];
  return made;
}

void add_figures(Call& call, const Call& inner) {
  call.device_s += inner.device_s;
  call.device += inner.device;
  call.kept += inner.kept;
  call.cpu += inner.cpu;
}

// Memory without a call of its own counts for one where it is allocated.
bool counts(const Call& call) {
  return call.kind != CallKind::allocation || call.device.count > 0 || call.cpu.count > 0;
}

void add_own(ProfileRow& row, const Call& call, const Spent& own) {
  row.calls += counts(call) ? 1 : 0;
  row.self_cpu_s += own.cpu_s;
  *row.self_device_s += own.device_s;
  row.self_bytes += own.device;
  row.self_kept += call.kept;
  row.self_cpu_bytes += own.cpu;
}

void add_total(ProfileRow& row, const Spent& total) {
  row.cpu_s += total.cpu_s;
  *row.device_s += total.device_s;
  row.total_bytes += total.device;
  row.cpu_bytes += total.cpu;
}

ProfileRow empty_row(std::string name, CallKind kind) {
  ProfileRow row;
  row.name = std::move(name);
  row.kind = kind;
  row.device_s = row.self_device_s = 0;
  return row;
}

std::vector<ProfileRow> rows_of_operators(const Profile& profile, bool by_shape) {
  const std::vector<Spent> own = own_of(profile), totals = totals_of(profile);
  std::map<std::tuple<Name, Name, bool>, std::size_t> numbers;  // name, shapes, is a range
  std::vector<ProfileRow> rows;
  std::vector<std::optional<Name>> shapes;  // of each row; empty: several
  for (std::size_t i = 0; i < profile.calls.size(); ++i) {
    const Call& call = profile.calls[i];
    const auto [found, is_new] = numbers.try_emplace(
        {call.name, by_shape ? call.shapes : 0, call.kind == CallKind::range}, rows.size());
    if (is_new) {
      rows.push_back(empty_row(std::string(profile.names.text(call.name)), call.kind));
      shapes.emplace_back(call.shapes);
    }
    const std::size_t number = found->second;
    if (shapes[number] != call.shapes) shapes[number].reset();
    if (call.kind == CallKind::operation) rows[number].kind = CallKind::operation;
    add_own(rows[number], call, own[i]);
    add_total(rows[number], totals[i]);
  }
  for (std::size_t i = 0; i < rows.size(); ++i)
    rows[i].shapes = shapes[i] ? std::string(profile.names.text(*shapes[i])) : std::string();
  return rows;
}

// "h.0.attn", "h.0", "h", "": a module and those that contain it.
std::vector<std::string> with_outer_modules(std::string name) {
  std::vector<std::string> all{name};
  while (!name.empty()) {
    const std::size_t dot = name.rfind('.');
    name.resize(dot == std::string::npos ? 0 : dot);
    all.push_back(name);
  }
  return all;
}

std::vector<ProfileRow> rows_of_modules(const Profile& profile) {
  const std::vector<Spent> own = own_of(profile);
  std::map<std::string, ProfileRow> by_name;
  std::map<Name, std::vector<ProfileRow*>> known;  // a module's row and those of its outer ones
  for (std::size_t i = 0; i < profile.calls.size(); ++i) {
    const Call& call = profile.calls[i];
    std::vector<ProfileRow*>& chain = known[call.module];
    if (chain.empty())
      for (const std::string& name :
           with_outer_modules(std::string(profile.names.text(call.module))))
        chain.push_back(
            &by_name.try_emplace(name, empty_row(name, CallKind::module)).first->second);
    add_own(*chain.front(), call, own[i]);
    for (ProfileRow* const row : chain) add_total(*row, own[i]);
  }
  std::vector<ProfileRow> rows;
  for (auto& [name, row] : by_name) rows.push_back(std::move(row));
  return rows;
}

// ---- Sorting ----

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

std::string own_name(std::string key) {
  if (const std::size_t cuda = key.find("cuda"); cuda != std::string::npos)
    key.replace(cuda, 4, "device");
  for (const auto& [theirs, ours] : kSynonyms)
    if (key == theirs) return std::string(ours);
  return key;
}

bool is_cpu_time(const SortKey& key) {
  return key.name == "cpu_s" || key.name == "self_cpu_s";
}

// The key, then the others. CPU times break no ties: they differ from run to run.
std::vector<SortKey> keys_from(const std::string& sort_by) {
  const std::string key = own_name(sort_by);
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

// Largest first, at last by name.
void sort(std::vector<ProfileRow>& rows, const std::string& sort_by) {
  const std::vector<SortKey> keys = keys_from(sort_by);
  std::stable_sort(rows.begin(), rows.end(), [&](const ProfileRow& a, const ProfileRow& b) {
    for (const SortKey& each : keys)
      if (each.figure(a) != each.figure(b)) return each.figure(a) > each.figure(b);
    return std::tie(a.name, a.shapes) < std::tie(b.name, b.shapes);
  });
}

}  // namespace

Profile without_repeated_calls(Profile profile) {
  std::vector<std::size_t> made = calls_made(profile.calls);
  std::vector<std::size_t> numbers(profile.calls.size());  // of each call, or of its outer one
  std::size_t kept = 0;
  for (std::size_t i = 0; i < profile.calls.size(); ++i) {
    Call call = profile.calls[i];
    if (call.parent >= 0)
      call.parent = static_cast<std::int32_t>(numbers[static_cast<std::size_t>(call.parent)]);
    Call* const outer =
        call.parent < 0 ? nullptr : &profile.calls[static_cast<std::size_t>(call.parent)];
    const bool repeats = outer != nullptr && call.kind == CallKind::operation &&
                         outer->name == call.name &&
                         made[static_cast<std::size_t>(call.parent)] == 1;
    numbers[i] = repeats ? static_cast<std::size_t>(call.parent) : kept++;
    made[numbers[i]] = made[i];
    if (repeats)
      add_figures(*outer, call);
    else
      profile.calls[numbers[i]] = call;
  }
  profile.calls.resize(kept);
  return profile;
}

GroupBy group_named(std::string_view name) {
  for (const GroupBy group : {GroupBy::operation, GroupBy::shape, GroupBy::module})
    if (name == to_string(group)) return group;
  throw UsageError(expectation("group_by", "operator, shape or module", name, "operator"));
}

std::string_view to_string(GroupBy group) {
  switch (group) {
    case GroupBy::operation:
      return "operator";
    case GroupBy::shape:
      return "shape";
    case GroupBy::module:
      return "module";
  }
  return "operator";
}

std::vector<std::string> sort_keys() {
  std::vector<std::string> names;
  for (const SortKey& key : kSortKeys) names.emplace_back(key.name);
  names.emplace_back(kByName);
  return names;
}

std::vector<ProfileRow> rows(const Profile& profile, const ProfileView& view) {
  std::vector<ProfileRow> rows = view.group_by == GroupBy::module
                                     ? rows_of_modules(profile)
                                     : rows_of_operators(profile, view.group_by == GroupBy::shape);
  if (!profile.has_device)
    for (ProfileRow& row : rows) row.device_s = row.self_device_s = std::nullopt;
  sort(rows, view.sort_by);
  if (view.row_limit > 0 && rows.size() > view.row_limit) rows.resize(view.row_limit);
  return rows;
}

}  // namespace headroom::memory
