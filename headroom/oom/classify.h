// Tells an out-of-memory from every other failure, by what a program printed and how it ended.
//
// The last fatal message counts, not any line: what was survived, warned of or explained in a help
// text is no failure. Of several ranks the first cause counts, not what the others say about it.
//
//   Judgement judgement = classify({.text = last_lines, .exit_code = 1});
//   if (judgement.verdict == Verdict::gpu_oom) retry_with_less(judgement.asked);
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/oom/host_watch.h"
#include "headroom/oom/judgement.h"

namespace headroom::oom {

struct Ending {
  std::string_view text;                // the end of its output, both streams
  std::vector<std::string> type_names;  // of the exceptions, if known; the outermost first
  std::optional<int> exit_code;         // 128 + signal as a shell counts, too
  std::optional<int> signal;
  std::optional<HostPressure> host;  // what the system counted meanwhile
};

[[nodiscard]] Judgement classify(const Ending& ending);

}  // namespace headroom::oom
