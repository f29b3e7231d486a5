// Copies keys from our terminal to the job's, each as it is typed. The job's terminal acts on
// Ctrl-C, Ctrl-Z and Ctrl-D; the first two are also reported here.
#pragma once

#include <poll.h>

#include <array>
#include <string_view>
#include <vector>

namespace headroom::job {

struct Typed {
  bool interrupt = false;  // Ctrl-C, and the job's terminal makes a signal of it
  bool suspend = false;    // Ctrl-Z, likewise
  bool nothing = false;    // another process group has the terminal now
};

class Keyboard {
 public:
  // The caller keeps both descriptors.
  Keyboard(int terminal, int job) : terminal_(terminal), job_(job) {}

  // Reads only while the keys are `ours`.
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
