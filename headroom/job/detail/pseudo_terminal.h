// A terminal of our own making: the job holds one end, we the other.
#pragma once

#include <optional>

#include "headroom/base/descriptor.h"

namespace headroom::job {

struct PseudoTerminal {
  Descriptor ours;  // does not block
  Descriptor jobs;  // to be closed once the job has it
};

// Also where the terminal knows no job control.
[[nodiscard]] bool is_foreground_of(int terminal);

// With the size and the modes of the terminal `like`; while its keys are a shell's (`run ... &`),
// whose line editor has modes of its own there, with those that a shell gives its jobs. With
// `plain_output` what is written comes out as it was: for when `like` goes on turning line ends
// into its own. Nothing where the system has none left.
[[nodiscard]] std::optional<PseudoTerminal> open_pseudo_terminal(int like, bool plain_output);

// A change of size tells the foreground group of `to` (SIGWINCH).
void copy_terminal_size(int from, int to);

}  // namespace headroom::job
