// Tells an out-of-memory from every other failure, by a program's output and the way it ended.
//
// Only a failure that ended the program counts: a failure that it survived, a warning or a help
// text is not one. With several ranks the first cause counts, not the reports of the other ranks.
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
  std::optional<int> exit_code;         // 128 + signal, as shells report it, is understood, too
  std::optional<int> signal;
  std::optional<HostKills> host;  // the system's counters for the time of the run
};

[[nodiscard]] Judgement classify(const Ending& ending);

}  // namespace headroom::oom
