// A profile as text. Device columns are left out without a device, others if they hold only zeros;
// those of least use are left out until names have room. The figure that rows are sorted by stays.
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "headroom/base/text.h"
#include "headroom/base/wrap.h"
#include "headroom/profile/detail/profile_order.h"
#include "headroom/profile/profile.h"

namespace headroom::profile {
namespace {

constexpr std::size_t kBetween = 2, kLeastName = 20, kRoomForNames = 32;
using detail::Figure;

struct Column {
  Figure figure;
  std::size_t width;
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

std::string text_of(const Figure& figure, const ProfileRow& row) {
  const double number = figure.of(row);
  if (figure.unit == detail::Unit::seconds) return time_text(number);
  const auto whole = static_cast<std::int64_t>(number);
  return figure.unit == detail::Unit::bytes ? bytes_text(Bytes(whole)) : std::to_string(whole);
}

// With ranges marked: they are not operators.
std::string shown_name(const ProfileRow& row) {
  if (row.kind == CallKind::module) return row.name.empty() ? "(all)" : row.name;
  return row.kind == CallKind::range ? row.name + " (range)" : row.name;
}

// "autograd::engine::eva..: AddmmBackward0": the end says more than the middle.
std::string cut_in_the_middle(const std::string& text, std::size_t width) {
  if (text.size() <= width) return text;
  const std::size_t end = (width - 2) * 3 / 5;
  const std::size_t from = text.size() - end;
  std::size_t start = from;  // of a character
  while (start < text.size() && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) ++start;
  return std::string(beginning(text, width - 2 - end)) + ".." + text.substr(start);
}

// "[8,768] [768,3072]": without the inputs that are not tensors.
std::string shapes_text(const std::string& shapes) {
  if (shapes.empty()) return {};
  std::string text;
  for (const Json& shape : parse_json(shapes, "shapes")) {
    if (!shape.empty()) text += (text.empty() ? "" : " ") + shape.dump();
  }
  return text;
}

std::size_t width_of(const Figure& figure, const std::vector<ProfileRow>& rows) {
  std::size_t width = figure.heading.size();
  for (const ProfileRow& row : rows) width = std::max(width, text_of(figure, row).size());
  return width + kBetween;
}

std::size_t width_of(const std::vector<Column>& columns) {
  std::size_t width = 0;
  for (const Column& column : columns) width += column.width;
  return width;
}

bool is_shown(const Figure& figure, const std::vector<ProfileRow>& rows) {
  const auto any = [&](auto test) { return std::any_of(rows.begin(), rows.end(), test); };
  if (figure.use != Figure::kAlways)
    return any([&](const ProfileRow& row) { return figure.of(row) != 0; });
  return !figure.of_device || any([](const ProfileRow& row) { return row.device_s.has_value(); });
}

std::vector<Column> columns_for(const std::vector<ProfileRow>& rows, const std::string& sort_by,
                                std::size_t room) {
  std::vector<Column> columns;
  for (const Figure& figure : detail::figures())
    if (is_shown(figure, rows)) columns.push_back({figure, width_of(figure, rows)});
  for (Column& column : columns)
    if (column.figure.key == detail::own_name(sort_by)) column.figure.use = Figure::kAlways;
  while (width_of(columns) > room) {
    const auto least = std::min_element(
        columns.begin(), columns.end(),
        [](const Column& a, const Column& b) { return a.figure.use < b.figure.use; });
    if (least == columns.end() || least->figure.use == Figure::kAlways) break;
    columns.erase(least);
  }
  return columns;
}

std::string right(std::string_view text, std::size_t width) {
  return std::string(width > text.size() ? width - text.size() : 0, ' ').append(text);
}

std::string left(const std::string& text, std::size_t width) {
  return text + std::string(width > text.size() ? width - text.size() : 0, ' ');
}

// Says what the figures include and leave out.
std::string footer(const Profile& profile, const ProfileView& view, std::size_t shown,
                   std::size_t all) {
  Bytes device, cpu;
  for (const Call& call : profile.calls) {
    device += call.device;
    cpu += call.cpu;
  }
  std::string text = std::to_string(shown) + " of " + counted(static_cast<long long>(all), "row") +
                     " by " + view.sort_by + "; allocated in all: " + to_string(device) +
                     " on devices, " + to_string(cpu) + " on the CPU\n";
  if (profile.simulated_time)
    text += "device time: by the cost model, at the rates of: " + profile.rates_of +
            "; CPU time: of the simulation\n";
  if (view.group_by == GroupBy::module && !profile.knows_modules)
    text += "modules are not known here\n";
  return text;
}

}  // namespace

std::string table(const Profile& profile, const ProfileView& view, std::size_t width) {
  ProfileView whole = view;
  whole.row_limit = 0;
  std::vector<ProfileRow> shown = rows(profile, whole);
  const std::size_t all = shown.size();
  if (view.row_limit > 0 && all > view.row_limit) shown.resize(view.row_limit);
  const std::string heading = view.group_by == GroupBy::module ? "module" : "operator";
  std::size_t longest = heading.size();
  for (const ProfileRow& row : shown) longest = std::max(longest, shown_name(row).size());
  const std::size_t wanted = std::min(longest, kRoomForNames);
  const std::vector<Column> columns =
      columns_for(shown, view.sort_by, width > wanted ? width - wanted : 0);
  const std::size_t figures = width_of(columns);
  const std::size_t names =
      std::min(longest, std::max(kLeastName, width > figures ? width - figures : 0));

  std::string text = left(heading, names);
  for (const Column& column : columns) text += right(column.figure.heading, column.width);
  text += '\n' + std::string(names + figures, '-') + '\n';
  for (const ProfileRow& row : shown) {
    text += left(cut_in_the_middle(shown_name(row), names), names);
    for (const Column& column : columns) text += right(text_of(column.figure, row), column.width);
    text += '\n';
    const std::string shapes = view.group_by == GroupBy::shape ? shapes_text(row.shapes) : "";
    if (!shapes.empty()) text += "  " + cut_in_the_middle(shapes, names + figures - 2) + '\n';
  }
  const std::string below = footer(profile, view, shown.size(), all);
  for (const std::string_view line : split(trim(below), '\n'))
    text += wrapped(line, "", "  ", static_cast<int>(width));
  return text;
}

}  // namespace headroom::profile
