// What the rules say of a program's lines, in their order.
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
  bool raised = false;     // the message begins with an exception: what ends a program
  bool is_named = false;   // a reason that is no memory, and no consequence of a want of it
  bool of_killer = false;  // of the kernel, a scheduler: who was killed may be somebody else
  bool is_weak = false;    // words that nobody listed, without one of a device; or tried again
};

// Of memory: device or host.
[[nodiscard]] bool is_memory(const Finding& finding);

// Each line's finding, if it has one; harmless lines have none.
[[nodiscard]] std::vector<Finding> findings_in(const std::vector<Line>& lines);

}  // namespace headroom::oom::detail
