// Where in the program an event happened, and how the frames of Headroom's own snapshots say it.
#pragma once

#include <string_view>

#include "headroom/trace/event.h"

namespace headroom::trace::pickle {

struct Place {
  Name module = 0;
  Name operation = 0;
  Name line = 0;
  bool is_backward = false;
};

// File names of the frames in Headroom's own snapshots. Such a frame has line 0, and the operator,
// the module's path or the program's line as its name.
inline constexpr std::string_view kOperatorFrame = "operator";
inline constexpr std::string_view kModuleFrame = "module";
inline constexpr std::string_view kLineFrame = "line";

}  // namespace headroom::trace::pickle
