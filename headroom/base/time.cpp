#include "headroom/base/time.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <ctime>

#include "headroom/base/error.h"
#include "headroom/base/text.h"

namespace headroom {
namespace {

struct TimeUnit {
  std::string_view name;
  double seconds;
};
constexpr std::array<TimeUnit, 6> kTimeUnits{
    {{"ms", 0.001}, {"s", 1}, {"m", 60}, {"min", 60}, {"h", 3600}, {"d", 86400}}};

// Longer than any useful wait, and short enough to add to any clock.
constexpr double kLongest = 10.0 * 365 * 86400;

std::string format_time(WallTime when, bool utc) {
  const auto since_epoch = when.time_since_epoch();
  const auto millis =
      std::chrono::duration_cast<std::chrono::milliseconds>(since_epoch).count() % 1000;
  const std::time_t seconds = std::chrono::system_clock::to_time_t(when);
  std::tm parts{};
  utc ? gmtime_r(&seconds, &parts) : localtime_r(&seconds, &parts);
  std::array<char, 40> day{};
  std::strftime(day.data(), day.size(), utc ? "%Y-%m-%dT%H:%M:%S" : "%Y-%m-%d %H:%M:%S", &parts);
  std::array<char, 48> out{};
  std::snprintf(out.data(), out.size(), "%s.%03d%s", day.data(), static_cast<int>(millis),
                utc ? "Z" : "");
  return out.data();
}

}  // namespace

Seconds parse_duration(std::string_view text) {
  const auto refuse = [&]() -> void {
    throw UsageError(
        expectation("parse_duration", "a time such as 500ms, 30s, 10m or 1h30m", text, "30s"));
  };
  std::string_view rest = trim(text);
  if (const auto plain = to_number(rest); plain && *plain >= 0 && *plain <= kLongest)
    return Seconds(*plain);
  double total = 0;
  if (rest.empty()) refuse();
  while (!rest.empty()) {
    const std::size_t digits = rest.find_first_not_of("0123456789.");
    if (digits == 0 || digits == std::string_view::npos) refuse();
    const auto number = to_number(rest.substr(0, digits));
    rest.remove_prefix(digits);
    const std::string_view unit = rest.substr(0, rest.find_first_of("0123456789. "));
    rest = trim(rest.substr(unit.size()));
    double seconds = -1;
    for (const TimeUnit& known : kTimeUnits)
      if (unit == known.name) seconds = known.seconds;
    if (!number || seconds < 0) refuse();
    total += *number * seconds;
  }
  if (!(total <= kLongest)) refuse();
  return Seconds(total);
}

std::string duration_text(Seconds duration) {
  const double s = duration.count();
  std::array<char, 48> out{};
  const auto two = [&](double big, const char* big_name, double small, const char* small_name) {
    const auto whole = static_cast<long>(s / big);
    const auto rest = static_cast<long>((s - static_cast<double>(whole) * big) / small);
    if (rest == 0)
      std::snprintf(out.data(), out.size(), "%ld %s", whole, big_name);
    else
      std::snprintf(out.data(), out.size(), "%ld %s %ld %s", whole, big_name, rest, small_name);
  };
  if (s >= 0.0005 && s < 0.095) {
    std::snprintf(out.data(), out.size(), "%.0f ms", 1000 * s);
  } else if (s < 9.95) {
    std::snprintf(out.data(), out.size(), "%.1f s", s);
  } else if (s < 120) {
    std::snprintf(out.data(), out.size(), "%.0f s", s);
  } else if (s < 3600) {
    two(60, "m", 1, "s");
  } else if (s < 2 * 86400) {
    two(3600, "h", 60, "m");
  } else {
    two(86400, "d", 3600, "h");
  }
  return out.data();
}

std::int64_t wall_time_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string local_timestamp(WallTime when) {
  return format_time(when, false);
}
std::string utc_timestamp(WallTime when) {
  return format_time(when, true);
}

}  // namespace headroom
