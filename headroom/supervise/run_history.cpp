#include "headroom/supervise/run_history.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>

#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/base/json.h"

namespace headroom::supervise {
namespace {

Json text_or_null(const std::string& text) {
  return text.empty() ? Json() : Json(text);
}

// Held while a line is added, so that a line that does not fit can be removed again. Where a file
// system has no locks, appended lines are still whole.
class Turn {
 public:
  explicit Turn(int file) : file_(file) {
    while (::flock(file_, LOCK_EX) != 0 && errno == EINTR) {
    }
  }
  ~Turn() { ::flock(file_, LOCK_UN); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  int file_;
};

// The size of a plain file; std::nullopt for a pipe or a device.
std::optional<off_t> size_of(int file) {
  struct stat facts {};
  if (::fstat(file, &facts) != 0 || !S_ISREG(facts.st_mode)) return {};
  return facts.st_size;
}

bool ends_in_a_line(int file, off_t size) {
  char last = '\n';
  return size == 0 || ::pread(file, &last, 1, size - 1) != 1 || last == '\n';
}

}  // namespace

std::string to_line(const Try& one) {
  Json reported, plan;
  if (one.reported) {
    reported = one.reported->needed.count;
    plan = one.reported->plan;
  }
  return headroom::to_line(Json{{"try", one.number},
                                {"started", utc_timestamp(one.started)},
                                {"ended", utc_timestamp(one.ended)},
                                {"exit_code", one.end.exit_code},
                                {"signal", or_null(one.end.signal)},
                                {"verdict", to_string(one.judgement.verdict)},
                                {"kind", text_or_null(one.judgement.kind)},
                                {"evidence", text_or_null(one.judgement.evidence)},
                                {"asked_bytes", or_null(one.judgement.asked)},
                                {"peak_bytes", or_null(one.peak)},
                                {"reported_bytes", reported},
                                {"reported_plan", plan},
                                {"gpus", one.gpus},
                                {"batch", or_null(one.batch)},
                                {"accumulation", or_null(one.accumulation)},
                                {"command", one.command},
                                {"resumed_from", or_null(one.resumed_from)}});
}

History::History(const std::filesystem::path& file) : path_(file) {
  // Reads the last byte, too. A pipe or a terminal may allow writing only.
  const int flags = O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY;
  descriptor_ = Descriptor(::open(path_.c_str(), O_RDWR | flags, 0600));
  if (!descriptor_.is_open() && errno == EACCES)
    descriptor_ = Descriptor(::open(path_.c_str(), O_WRONLY | flags, 0600));
  if (!descriptor_.is_open()) throw WriteError(write_failure(path_, errno));
}

std::optional<std::string> History::append(const Try& one) {
  std::string line = to_line(one) + "\n";
  const int file = descriptor_.get();
  const Turn turn(file);
  const auto size = size_of(file);
  if (size && !ends_in_a_line(file, *size)) line.insert(0, 1, '\n');
  ssize_t written = -1;
  do {
    written = ::write(file, line.data(), line.size());
  } while (written < 0 && errno == EINTR);
  if (written == static_cast<ssize_t>(line.size())) return {};
  const int error = written < 0 ? errno : ENOSPC;
  const bool cut = written > 0 && size && ::ftruncate(file, *size) != 0;
  return write_failure(path_, error) + (cut ? " (an incomplete line was left in it)" : "");
}

}  // namespace headroom::supervise
