// Carries what the job writes to where we write, byte for byte and at once.
//
// Holds at most one reading of 64 KiB: while that is not written nothing more is read, so a slow
// reader makes the job wait, as it would without us. Where the reader is gone, our end of the job's
// pipe is closed: its next write gets SIGPIPE. Where the disk is full, what cannot be written is
// dropped and counted; the job does not notice.
//
//   Copier copier(std::move(read_end), STDOUT_FILENO);
//   copier.prepare(polled); poll(...); copier.serve(polled, [&](std::string_view text) { ... });
#pragma once

#include <poll.h>

#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "headroom/base/descriptor.h"

namespace headroom::job {

struct Unwritten {
  int error = 0;  // 0: everything was written
  long long bytes = 0;
};

class Copier {
 public:
  // `source` does not block; `sink` stays the caller's.
  Copier(Descriptor source, int sink);

  // Adds what is waited for to `polled`.
  void prepare(std::vector<pollfd>& polled);
  // Moves what can be moved. `seen` gets each reading.
  void serve(const std::vector<pollfd>& polled, const std::function<void(std::string_view)>& seen);

  // From now on an empty source is an ended one: nobody is left who writes.
  void expect_end() { end_expected_ = true; }
  void stop();  // nobody is to get the rest
  // Nothing more comes, and what came is written.
  [[nodiscard]] bool ended() const { return !source_.is_open() && pending().empty(); }
  [[nodiscard]] bool would_read() const { return source_.is_open() && pending().empty(); }
  [[nodiscard]] const Unwritten& unwritten() const { return unwritten_; }
  // Nobody reads any more where we write.
  [[nodiscard]] bool reader_is_gone() const { return reader_is_gone_; }

 private:
  static constexpr std::size_t kReading = 64 * 1024;

  [[nodiscard]] std::string_view pending() const {
    return {buffer_.get() + written_, filled_ - written_};
  }
  void read(const std::function<void(std::string_view)>& seen);
  void write(bool has_room);
  void not_written(int error);
  void reader_gone();

  Descriptor source_;
  int sink_;
  Descriptor own_sink_;       // the same pipe or terminal opened anew, so that it need not block
  bool never_waits_ = false;  // a file
  bool is_terminal_ = false;
  bool end_expected_ = false;
  bool reader_is_gone_ = false;
  std::size_t source_place_ = 0, sink_place_ = 0;                        // in `polled`
  std::unique_ptr<char[]> buffer_ = std::make_unique<char[]>(kReading);  // NOLINT: raw bytes
  std::size_t filled_ = 0, written_ = 0;
  Unwritten unwritten_;
};

}  // namespace headroom::job
