// The matches of the rules in a program's output, in the order of its lines.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "headroom/oom/detail/lines.h"
#include "headroom/oom/detail/rules.h"

namespace headroom::oom::detail {

struct Finding {
  Meaning meaning = Meaning::possible;
  std::string kind;
  double confidence = 0;
  std::size_t line = 0;
  bool raised = false;     // the message begins with an exception, which ends a program
  bool is_named = false;   // a reason other than memory, and no consequence of its lack
  bool of_killer = false;  // by the kernel or a scheduler, which may have killed another process
  bool is_weak = false;    // unlisted words without a device word, or a request that is retried
};

// True for device and host memory.
[[nodiscard]] bool is_memory(const Finding& finding);

// At most one finding per line; harmless lines have none.
[[nodiscard]] std::vector<Finding> findings_in(const std::vector<Line>& lines);

}  // namespace headroom::oom::detail
