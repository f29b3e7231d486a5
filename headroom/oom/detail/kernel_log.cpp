#include "headroom/oom/detail/kernel_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string_view>

#include "headroom/base/text.h"
#include "headroom/oom/detail/pattern.h"

namespace headroom::oom::detail {
namespace {

constexpr int kMostRecords = 20000;  // the log's own size is a few thousand

// The message of a record: "6,1234,5678,-;Out of memory: Killed process 12 (python3) ...".
std::string_view message_of(std::string_view record) {
  const std::size_t semicolon = record.find(';');
  const bool has_head = semicolon != std::string_view::npos && semicolon < 64;
  return trim(has_head ? record.substr(semicolon + 1) : record);
}

bool names(std::string_view line, pid_t pid) {
  const std::string number = std::to_string(pid);
  return matches("process " + number, line) || matches("pid=" + number, line);
}

}  // namespace

KernelLog::KernelLog(const std::filesystem::path& device)
    : descriptor_(::open(device.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)) {
  if (descriptor_.is_open()) ::lseek(descriptor_.get(), 0, SEEK_END);
}

void KernelLog::read_new() {
  std::array<char, 8192> record{};
  for (int i = 0; descriptor_.is_open() && i < kMostRecords; ++i) {
    const ssize_t size = ::read(descriptor_.get(), record.data(), record.size());
    if (size < 0 && (errno == EPIPE || errno == EINTR)) continue;  // EPIPE: overwritten meanwhile
    if (size <= 0) return;
    const std::string_view text(record.data(), static_cast<std::size_t>(size));
    for (const std::string_view line : split(text, '\n')) {
      const std::string_view message = message_of(line);
      const std::string low = lower(message);
      if (matches("kill*process #", low) || matches("oom-kill:", low)) kills_.emplace_back(message);
    }
  }
}

std::string KernelLog::line_naming(const std::vector<pid_t>& pids) {
  read_new();
  for (const std::string& line : kills_)
    for (const pid_t pid : pids)
      if (names(lower(line), pid)) return line;
  return {};
}

}  // namespace headroom::oom::detail
