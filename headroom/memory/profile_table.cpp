// A profile as text. Device columns are left out without a device, others if they hold only zeros;
// those of least use are left out until names have room. The figure that rows are sorted by stays.
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "headroom/base/text.h"
#include "headroom/memory/detail/profile_order.h"
#include "headroom/memory/profile.h"

namespace headroom::memory {
namespace {

constexpr std::size_t kBetween = 2, kLeastName = 20, kRoomForNames = 32;
constexpr int kAlways = 9;

struct Column {
  std::string key, heading;
  std::string (*text)(const ProfileRow&);
  double (*figure)(const ProfileRow&);
  int use;  // columns of less use are left out first
  bool of_device = false;
};

// Three digits: "1.34 ms".
std::string time_text(double seconds) {
  if (seconds <= 0) return "-";
  const bool in_seconds = seconds >= 0.9995, in_ms = seconds >= 0.9995e-3;
  const double number = seconds * (in_seconds ? 1 : in_ms ? 1e3 : 1e6);
  char text[32];
  std::snprintf(text, sizeof text, "%.*f %s",
                number >= 99.95   ? 0
                : number >= 9.995 ? 1
                                  : 2,
                number,
                in_seconds ? "s"
                : in_ms    ? "ms"
                           : "us");
  return text;
}

std::string bytes_text(Bytes bytes) {
  return bytes.count == 0 ? "-" : to_string(bytes);
}

const std::vector<Column>& all_columns() {
  static const std::vector<Column> columns{
      {"calls", "calls", [](const ProfileRow& row) { return std::to_string(row.calls); },
       [](const ProfileRow& row) { return static_cast<double>(row.calls); }, kAlways},
      {"self_bytes", "self mem", [](const ProfileRow& row) { return bytes_text(row.self_bytes); },
       [](const ProfileRow& row) { return static_cast<double>(row.self_bytes.count); }, kAlways,
       true},
      {"total_bytes", "total mem",
       [](const ProfileRow& row) { return bytes_text(row.total_bytes); },
       [](const ProfileRow& row) { return static_cast<double>(row.total_bytes.count); }, kAlways,
       true},
      {"self_kept_bytes", "self kept",
       [](const ProfileRow& row) { return bytes_text(row.self_kept); },
       [](const ProfileRow& row) { return static_cast<double>(row.self_kept.count); }, 1},
      {"self_cpu_bytes", "self CPU mem",
       [](const ProfileRow& row) { return bytes_text(row.self_cpu_bytes); },
       [](const ProfileRow& row) { return static_cast<double>(row.self_cpu_bytes.count); }, 2},
      {"cpu_bytes", "CPU mem", [](const ProfileRow& row) { return bytes_text(row.cpu_bytes); },
       [](const ProfileRow& row) { return static_cast<double>(row.cpu_bytes.count); }, 4},
      {"self_cpu_s", "self CPU", [](const ProfileRow& row) { return time_text(row.self_cpu_s); },
       [](const ProfileRow& row) { return row.self_cpu_s; }, 3},
      {"cpu_s", "CPU time", [](const ProfileRow& row) { return time_text(row.cpu_s); },
       [](const ProfileRow& row) { return row.cpu_s; }, kAlways},
      {"self_device_s", "self device",
       [](const ProfileRow& row) { return time_text(row.self_device_s.value_or(0)); },
       [](const ProfileRow& row) { return row.self_device_s.value_or(0); }, 1},
      {"device_s", "device time",
       [](const ProfileRow& row) { return time_text(row.device_s.value_or(0)); },
       [](const ProfileRow& row) { return row.device_s.value_or(0); }, kAlways, true}};
  return columns;
}

// With ranges marked: they are no operators.
std::string shown_name(const ProfileRow& row) {
  if (row.kind == CallKind::module) return row.name.empty() ? "(all)" : row.name;
  return row.kind == CallKind::range ? row.name + " (range)" : row.name;
}

// "autograd::engine::eva..: AddmmBackward0": the end tells more than the middle.
std::string cut_in_the_middle(const std::string& text, std::size_t width) {
  if (text.size() <= width) return text;
  const std::size_t end = (width - 2) * 3 / 5;
  const std::size_t from = text.size() - end;
  std::size_t start = from;  // of a character
  while (start < text.size() && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) ++start;
  return std::string(beginning(text, width - 2 - end)) + ".." + text.substr(start);
}

// "[8,768] [768,3072]": without the inputs that are no tensors.
std::string shapes_text(const std::string& shapes) {
  if (shapes.empty()) return {};
  std::string text;
  for (const Json& shape : parse_json(shapes, "shapes")) {
    if (!shape.empty()) text += (text.empty() ? "" : " ") + shape.dump();
  }
  return text;
}

std::size_t width_of(const Column& column, const std::vector<ProfileRow>& rows) {
  std::size_t width = column.heading.size();
  for (const ProfileRow& row : rows) width = std::max(width, column.text(row).size());
  return width + kBetween;
}

std::size_t width_of(const std::vector<Column>& columns, const std::vector<ProfileRow>& rows) {
  std::size_t width = 0;
  for (const Column& column : columns) width += width_of(column, rows);
  return width;
}

std::vector<Column> columns_for(const std::vector<ProfileRow>& rows, const std::string& sort_by,
                                std::size_t room) {
  std::vector<Column> columns;
  const bool has_device =
      std::any_of(rows.begin(), rows.end(), [](const ProfileRow& row) { return row.device_s; });
  for (const Column& column : all_columns())
    if (column.use == kAlways ? !column.of_device || has_device
                              : std::any_of(rows.begin(), rows.end(), [&](const ProfileRow& row) {
                                  return column.figure(row) != 0;
                                }))
      columns.push_back(column);
  for (Column& column : columns)
    if (column.key == detail::own_name(sort_by)) column.use = kAlways;
  while (width_of(columns, rows) > room) {
    const auto least =
        std::min_element(columns.begin(), columns.end(),
                         [](const Column& a, const Column& b) { return a.use < b.use; });
    if (least == columns.end() || least->use == kAlways) break;
    columns.erase(least);
  }
  return columns;
}

std::string right(const std::string& text, std::size_t width) {
  return std::string(width > text.size() ? width - text.size() : 0, ' ') + text;
}

std::string left(const std::string& text, std::size_t width) {
  return text + std::string(width > text.size() ? width - text.size() : 0, ' ');
}

// What the figures are, and are not.
std::string footer(const Profile& profile, const ProfileView& view, std::size_t shown) {
  ProfileView all = view;
  all.row_limit = 0;
  Bytes device, cpu;
  std::size_t count = 0;
  for (const ProfileRow& row : rows(profile, all)) {
    device += row.self_bytes;
    cpu += row.self_cpu_bytes;
    ++count;
  }
  std::string text = std::to_string(shown) + " of " +
                     counted(static_cast<long long>(count), "row") + " by " + view.sort_by +
                     "; allocated in all: " + to_string(device) + " on devices, " + to_string(cpu) +
                     " on the CPU\n";
  if (profile.simulated_time)
    text += "device time: by the cost model, at the rates of: " + profile.rates_of +
            "; CPU time: of the simulation\n";
  if (view.group_by == GroupBy::module && !profile.knows_modules)
    text += "modules are not known here\n";
  return text;
}

}  // namespace

std::string table(const Profile& profile, const ProfileView& view, std::size_t width) {
  const std::vector<ProfileRow> shown = rows(profile, view);
  const std::string heading = view.group_by == GroupBy::module ? "module" : "operator";
  std::size_t longest = heading.size();
  for (const ProfileRow& row : shown) longest = std::max(longest, shown_name(row).size());
  const std::size_t wanted = std::min(longest, kRoomForNames);
  const std::vector<Column> columns =
      columns_for(shown, view.sort_by, width > wanted ? width - wanted : 0);
  const std::size_t figures = width_of(columns, shown);
  const std::size_t names =
      std::min(longest, std::max(kLeastName, width > figures ? width - figures : 0));

  std::string text = left(heading, names);
  for (const Column& column : columns) text += right(column.heading, width_of(column, shown));
  text += '\n' + std::string(names + figures, '-') + '\n';
  for (const ProfileRow& row : shown) {
    text += left(cut_in_the_middle(shown_name(row), names), names);
    for (const Column& column : columns) text += right(column.text(row), width_of(column, shown));
    text += '\n';
    const std::string shapes = view.group_by == GroupBy::shape ? shapes_text(row.shapes) : "";
    if (!shapes.empty()) text += "  " + cut_in_the_middle(shapes, names + figures - 2) + '\n';
  }
  return text + footer(profile, view, shown.size());
}

}  // namespace headroom::memory
