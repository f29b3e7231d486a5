#include "headroom/profile/profile.h"

#include <map>
#include <tuple>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/profile/detail/profile_order.h"

namespace headroom::profile {
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

// For each call; memory without a call of its own does not count as one.
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
  std::vector<std::optional<Name>> shapes;  // of each row; std::nullopt if its calls differ
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

std::vector<ProfileRow> rows(const Profile& profile, const ProfileView& view) {
  std::vector<ProfileRow> rows = view.group_by == GroupBy::module
                                     ? rows_of_modules(profile)
                                     : rows_of_operators(profile, view.group_by == GroupBy::shape);
  if (!profile.has_device)
    for (ProfileRow& row : rows) row.device_s = row.self_device_s = std::nullopt;
  detail::sort(rows, view.sort_by);
  if (view.row_limit > 0 && rows.size() > view.row_limit) rows.resize(view.row_limit);
  return rows;
}

}  // namespace headroom::profile
