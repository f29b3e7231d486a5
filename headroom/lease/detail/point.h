// Moments at which a test lets a process die: between two steps that others could see apart.
#pragma once

namespace headroom::lease::detail {

enum class Point { my_turn, file_made, file_locked, file_written, lease_there, lease_noted };

// Called at each of them, if set. For tests; set it before other threads run.
inline void (*at_point)(Point) = nullptr;

inline void pass(Point point) {
  if (at_point != nullptr) at_point(point);
}

}  // namespace headroom::lease::detail
