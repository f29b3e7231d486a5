// What is typed at our terminal, carried to the job's: every key as it comes. The job's terminal
// turns Ctrl-C, Ctrl-Z and Ctrl-D into what they mean; of the first two we are told.
#pragma once

#include <poll.h>

#include <array>
#include <string_view>
#include <vector>

namespace headroom::job {

struct Typed {
  bool interrupt = false;  // Ctrl-C, and the job's terminal makes a signal of it
  bool suspend = false;    // Ctrl-Z, likewise
  bool nothing = false;    // the terminal is somebody else's by now
};

class Keyboard {
 public:
  // Both stay the caller's.
  Keyboard(int terminal, int job) : terminal_(terminal), job_(job) {}

  // Nothing is read while the keys belong to somebody else.
  void prepare(std::vector<pollfd>& polled, bool ours);
  Typed serve(const std::vector<pollfd>& polled);

 private:
  [[nodiscard]] std::string_view pending() const {
    return {buffer_.data() + written_, filled_ - written_};
  }
  Typed read();
  [[nodiscard]] Typed write();

  int terminal_, job_;
  bool ended_ = false;
  std::size_t place_ = 0;  // in `polled`
  std::array<char, 4096> buffer_{};
  std::size_t filled_ = 0, written_ = 0;
};

}  // namespace headroom::job
