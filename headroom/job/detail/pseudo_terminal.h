// A pseudo-terminal: the job holds one end, this process the other.
#pragma once

#include <optional>

#include "headroom/base/descriptor.h"

namespace headroom::job {

struct PseudoTerminal {
  Descriptor ours;  // does not block
  Descriptor jobs;  // close it once the job has started
};

// True also for a terminal without job control.
[[nodiscard]] bool is_foreground_of(int terminal);

// Copies size and modes of the terminal `like`. While a shell reads its keys (`run ... &`), the
// modes are the line editor's, so it uses those that a shell gives its jobs. With `plain_output`
// line ends are not converted, because `like` converts them itself. std::nullopt if the system has
// none left.
[[nodiscard]] std::optional<PseudoTerminal> open_pseudo_terminal(int like, bool plain_output);

// If the size changes, the foreground group of `to` gets SIGWINCH.
void copy_terminal_size(int from, int to);

}  // namespace headroom::job
