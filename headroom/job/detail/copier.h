// Copies the job's output to ours, byte for byte and without delay.
//
// Holds at most one read of 64 KiB and reads no more until that is written, so a slow reader makes
// the job wait, as it would without us. If the reader is gone, our end of the job's pipe closes,
// and the job's next write gets SIGPIPE. If the disk is full, the bytes are dropped and counted,
// and the job runs on.
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

  // Adds its descriptors to `polled`.
  void prepare(std::vector<pollfd>& polled);
  // Reads and writes as far as possible without blocking. `seen` gets each piece read.
  void serve(const std::vector<pollfd>& polled, const std::function<void(std::string_view)>& seen);

  // No process can write any more: from now on an empty source has ended.
  void expect_end() { end_expected_ = true; }
  void stop();  // drops the rest
  // The source has ended and everything is written.
  [[nodiscard]] bool ended() const { return !source_.is_open() && pending().empty(); }
  [[nodiscard]] bool would_read() const { return source_.is_open() && pending().empty(); }
  [[nodiscard]] const Unwritten& unwritten() const { return unwritten_; }
  // The reader of our output is gone.
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
  Descriptor own_sink_;       // the same pipe or terminal, opened again without blocking
  bool never_waits_ = false;  // a regular file
  bool is_terminal_ = false;
  bool end_expected_ = false;
  bool reader_is_gone_ = false;
  std::size_t source_place_ = 0, sink_place_ = 0;                        // in `polled`
  std::unique_ptr<char[]> buffer_ = std::make_unique<char[]>(kReading);  // NOLINT: raw bytes
  std::size_t filled_ = 0, written_ = 0;
  Unwritten unwritten_;
};

}  // namespace headroom::job
