// Points at which a test kills a process: between two steps that other processes could see.
#pragma once

namespace headroom::lease::detail {

enum class Point { my_turn, file_made, file_locked, file_written, lease_there, lease_noted };

// Called at each point, if set. For tests; set it before other threads run.
inline void (*at_point)(Point) = nullptr;

inline void pass(Point point) {
  if (at_point != nullptr) at_point(point);
}

}  // namespace headroom::lease::detail
