#include "headroom/trace/detail/columns.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "headroom/trace/detail/file_form.h"

namespace headroom::trace::detail {
namespace {

// Encodes a number as the difference from the previous one.
class Difference {
 public:
  std::uint64_t of(std::uint64_t value) {
    const std::uint64_t difference = value - before_;
    before_ = value;
    return zigzag(difference);
  }
  std::uint64_t back(std::uint64_t value) { return before_ += unzigzag(value); }

 private:
  std::uint64_t before_ = 0;
};

class ColumnWriter {
 public:
  ColumnWriter(std::string& to, std::span<const Event> events)
      : to_(to), events_(events), scratch_(events.size() * kLongestVarint, '\0') {}

  template <typename Value>
  void write(Column column, Value value) {
    char* end = scratch_.data();
    std::uint64_t any = 0;
    for (const Event& event : events_) {
      const std::uint64_t number = value(event);
      any |= number;
      end = put_varint(end, number);
    }
    if (any == 0 && column != Column::kind) return;
    const auto size = static_cast<std::size_t>(end - scratch_.data());
    append_varint(to_, static_cast<std::uint64_t>(column));
    append_varint(to_, size);
    to_.append(scratch_, 0, size);
  }

 private:
  std::string& to_;
  std::span<const Event> events_;
  std::string scratch_;
};

// True if each event gets a number and no bytes remain.
template <typename Set>
bool fill(std::string_view bytes, std::span<Event> events, Set set) {
  Cursor cursor(bytes);
  std::uint64_t value = 0;
  for (Event& event : events)
    if (!cursor.take(value) || !set(event, value)) return false;
  return cursor.is_over();
}

// Sets a field whose numbers are below `limit`.
template <typename Field>
auto below(std::uint64_t limit, Field Event::*field) {
  return [=](Event& event, std::uint64_t value) {
    event.*field = static_cast<Field>(value);
    return value < limit;
  };
}

bool set_bytes(Event& event, std::uint64_t value) {
  event.bytes = Bytes{static_cast<std::int64_t>(value)};
  return event.bytes.count >= 0;
}

bool read_column(Column column, std::string_view bytes, std::span<Event> events,
                 std::size_t names) {
  const auto differences = [&](auto field) {
    return fill(
        bytes, events, [field, before = Difference()](Event& event, std::uint64_t value) mutable {
          value = before.back(value);
          event.*field = static_cast<std::remove_reference_t<decltype(event.*field)>>(value);
          return static_cast<std::uint64_t>(event.*field) == value;
        });
  };
  switch (column) {
    case Column::kind:
      return fill(bytes, events, below(kKinds, &Event::kind));
    case Column::time:
      return differences(&Event::time_ns);
    case Column::address:
      return differences(&Event::address);
    case Column::bytes:
      return fill(bytes, events, set_bytes);
    case Column::stream:
      return fill(bytes, events, below(std::uint64_t{kAllStreams} + 1, &Event::stream));
    case Column::step:
      return differences(&Event::step);
    case Column::module:
      return fill(bytes, events, below(names, &Event::module));
    case Column::operation:
      return fill(bytes, events, below(names, &Event::operation));
    case Column::device:
      return fill(bytes, events,
                  below(std::numeric_limits<std::uint16_t>::max() + 1U, &Event::device));
    case Column::category:
      return fill(bytes, events, below(kCategories, &Event::category));
    case Column::phase:
      return fill(bytes, events, below(kPhases, &Event::phase));
    case Column::line:
      return fill(bytes, events, below(names, &Event::line));
  }
  return true;
}

}  // namespace

void append_columns(std::string& to, std::span<const Event> events) {
  ColumnWriter columns(to, events);
  const auto plain = [&](Column column, auto field) {
    columns.write(column,
                  [=](const Event& event) { return static_cast<std::uint64_t>(event.*field); });
  };
  const auto differences = [&](Column column, auto field) {
    columns.write(column, [field, before = Difference()](const Event& event) mutable {
      return before.of(static_cast<std::uint64_t>(event.*field));
    });
  };
  plain(Column::kind, &Event::kind);
  differences(Column::time, &Event::time_ns);
  differences(Column::address, &Event::address);
  columns.write(Column::bytes,
                [](const Event& event) { return static_cast<std::uint64_t>(event.bytes.count); });
  plain(Column::stream, &Event::stream);
  differences(Column::step, &Event::step);
  plain(Column::module, &Event::module);
  plain(Column::operation, &Event::operation);
  plain(Column::device, &Event::device);
  plain(Column::category, &Event::category);
  plain(Column::phase, &Event::phase);
  plain(Column::line, &Event::line);
}

bool has_a_stream(const Event& event) {
  return event.stream < kMostStreams ||
         (event.stream == kAllStreams && event.kind == Kind::complete_events);
}

std::string read_columns(std::string_view bytes, std::span<Event> events, std::size_t names) {
  Cursor cursor(bytes);
  std::uint64_t seen = 0;
  while (!cursor.is_over()) {
    std::uint64_t id = 0, size = 0;
    std::string_view column;
    if (!cursor.take(id) || !cursor.take(size) || !cursor.take(size, column))
      return "a column that ends within its part";
    if (id >= 64) continue;
    if ((seen & std::uint64_t{1} << id) != 0) return "column " + std::to_string(id) + " once";
    seen |= std::uint64_t{1} << id;
    if (!read_column(static_cast<Column>(id), column, events, names))
      return "numbers in column " + std::to_string(id) + " that an event can have";
  }
  const bool has_kinds = (seen & 2U) != 0;
  if (!has_kinds && !events.empty()) return "a column of kinds";
  return std::all_of(events.begin(), events.end(), has_a_stream) ? "" : "one stream for each event";
}

}  // namespace headroom::trace::detail
