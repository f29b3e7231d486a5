// How the job's standard input, output and error reach ours.
//
// Each output that is a terminal here is one there: a pseudo-terminal of ours. An output that is a
// pipe or a file is a pipe there, one for both where both are the same here, so that their order
// stays. If input and output are terminals, the pseudo-terminal is the job's controlling one, and
// what is typed here is typed there (our terminal is raw meanwhile). Otherwise the job keeps our
// input and our terminal as it would have them as a background group of ours, because others may
// share that terminal (`... | less`): it gets it lent when it asks for it (SIGTTIN, SIGTTOU).
// A pager behind a pipe (`seq 500 | headroom run -- less`) may ask the pseudo-terminal of its
// output instead: while its modes are those of a program that wants each key, keys go there.
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
  // Throws BusyError where no pipe can be made. Without pseudo-terminals there are pipes.
  Streams(const ClosedStreams& closed, bool output_to_error);
  ~Streams();
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;

  // For the child: see StartPlan.
  [[nodiscard]] const std::array<int, 3>& standard() const { return standard_; }
  [[nodiscard]] int controlling_terminal() const;
  // The child has them.
  void started(pid_t group);

  void prepare(std::vector<pollfd>& polled);
  Typed serve(const std::vector<pollfd>& polled, const std::function<void(std::string_view)>& seen);

  // Nobody is left who writes: what is on its way is still carried.
  void expect_end();
  void drop();  // what is still on its way
  [[nodiscard]] bool ended() const;
  // Something moves without being waited for.
  [[nodiscard]] bool ready() const;
  [[nodiscard]] Unwritten unwritten() const;

  // ---- The terminal
  [[nodiscard]] bool is_controlled() const { return controlled_; }
  // Keys are the job's where the terminal is ours: now, or when a shell gives it to us.
  void look_at_foreground();
  void after_a_stop();  // of ours
  [[nodiscard]] bool waits_for_foreground() const { return keyboard_ && !raw_.is_raw(); }
  // What is typed is the command's own: of a terminal that it controls, it is the foreground group.
  [[nodiscard]] bool command_has_keys() const;
  void copy_size();
  // Lends our terminal to the job's group; false if it is not ours to lend.
  bool lend();
  [[nodiscard]] bool is_lent() const { return lent_; }
  void take_back();  // the terminal, its modes

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
  int shown_on_ = -1;  // where the pseudo-terminal's output goes
  Descriptor our_terminal_;
  const int keys_;  // where they are typed
  RawTerminal raw_;
  std::optional<Keyboard> keyboard_;
  pid_t group_ = 0;
  bool lent_ = false;
  bool end_expected_ = false;
};

}  // namespace headroom::job
