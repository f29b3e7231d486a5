// Clocks and how to write times. Ages and waits use the monotonic clock (`Clock`); timestamps for
// people and files use the wall clock.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace headroom {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;
using WallTime = std::chrono::system_clock::time_point;

// "500ms", "30s", "10m", "1h30m", "2d"; a plain number is seconds. Throws UsageError.
[[nodiscard]] Seconds parse_duration(std::string_view text);

// For people: "20 ms", "0.4 s", "12 s", "3 m 20 s", "2 h 5 m", "4 d 3 h".
[[nodiscard]] std::string duration_text(Seconds duration);

// Now, in nanoseconds since 1970.
[[nodiscard]] std::int64_t wall_time_ns();

// "2026-11-21 14:03:07.250" in local time: like nvidia-smi's own logs, but in ISO order.
[[nodiscard]] std::string local_timestamp(WallTime when);
// "2026-11-21T13:03:07.250Z".
[[nodiscard]] std::string utc_timestamp(WallTime when);

}  // namespace headroom
