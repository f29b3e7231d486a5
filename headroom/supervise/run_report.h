// The outcome of a supervised run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "headroom/oom/forensics.h"
#include "headroom/supervise/try.h"

namespace headroom::supervise {

enum class Outcome {
  ended,          // by the command's own end, good or bad
  out_of_memory,  // in the last try, and nothing is left to change
  busy,           // no place in time
  no_cards,       // none where one is needed
  cancelled,      // by a signal, while no command ran
};

struct Report {
  Outcome outcome = Outcome::ended;
  int exit_code = 0;                        // the command's own; 128 + signal if cancelled
  std::string sentence;                     // the reason, unless all is well
  std::optional<oom::Forensics> forensics;  // of the last out-of-memory, if there was one
  std::vector<Try> tries;
  Seconds waited{0};
};

}  // namespace headroom::supervise
