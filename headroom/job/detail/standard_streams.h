// Connects the job's standard input, output and error to ours.
//
// An output that is a terminal here is a pseudo-terminal for the job. An output that is a pipe or a
// file is a pipe for the job; if both outputs are the same file here, they share one pipe, which
// keeps their order. If input and output are terminals, the pseudo-terminal becomes the job's
// controlling terminal, and keys typed here go there (our terminal is raw meanwhile). Otherwise the
// job keeps our input and our terminal as a background process group, because others may share that
// terminal (`... | less`): it is lent to the job when it asks for it (SIGTTIN, SIGTTOU). A pager
// behind a pipe (`seq 500 | headroom run -- less`) may read the pseudo-terminal of its output
// instead: keys go there while its modes show that the program wants each key.
#pragma once

#include <sys/types.h>

#include <array>
#include <deque>
#include <optional>

#include "headroom/job/detail/closed_streams.h"
#include "headroom/job/detail/copier.h"
#include "headroom/job/detail/keyboard.h"
#include "headroom/job/detail/pseudo_terminal.h"
#include "headroom/job/detail/terminal_mode.h"

namespace headroom::job {

class Streams {
 public:
  // Throws BusyError if no pipe can be made. Uses pipes if the system has no pseudo-terminal left.
  Streams(const ClosedStreams& closed, bool output_to_error);
  ~Streams();
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;

  // For the child: see StartPlan.
  [[nodiscard]] const std::array<int, 3>& standard() const { return standard_; }
  [[nodiscard]] int controlling_terminal() const;
  // The child has started with them.
  void started(pid_t group);

  void prepare(std::vector<pollfd>& polled);
  Typed serve(const std::vector<pollfd>& polled, const std::function<void(std::string_view)>& seen);

  // No process can write any more; output under way is still copied.
  void expect_end();
  void drop();  // output under way
  [[nodiscard]] bool ended() const;
  // Something can be read without waiting.
  [[nodiscard]] bool ready() const;
  [[nodiscard]] Unwritten unwritten() const;

  // ---- The terminal
  [[nodiscard]] bool is_controlled() const { return controlled_; }
  // Gives keys to the job if the terminal is ours: now, or when a shell gives it to us.
  void look_at_foreground();
  void after_a_stop();  // of this process
  [[nodiscard]] bool waits_for_foreground() const { return keyboard_ && !raw_.is_raw(); }
  // Keys go to the command itself: it is the foreground group of its controlling terminal.
  [[nodiscard]] bool command_has_keys() const;
  void copy_size();
  // Lends our terminal to the job's group; false if another group has it.
  bool lend();
  [[nodiscard]] bool is_lent() const { return lent_; }
  void take_back();  // the terminal with its modes

 private:
  void hang_up();
  [[nodiscard]] bool wants_keys() const;
  void connect_output(int stream, int sink);
  [[nodiscard]] int opened_pipe(int sink);

  const ClosedStreams& closed_;
  std::optional<PseudoTerminal> terminal_;
  std::vector<Descriptor> jobs_ends_;
  std::array<int, 3> standard_{-1, -1, -1};
  std::deque<Copier> copiers_;
  bool controlled_ = false;
  int shown_on_ = -1;  // gets the pseudo-terminal's output
  Descriptor our_terminal_;
  const int keys_;  // the terminal of the keyboard
  RawTerminal raw_;
  std::optional<Keyboard> keyboard_;
  pid_t group_ = 0;
  bool lent_ = false;
  bool end_expected_ = false;
};

}  // namespace headroom::job
