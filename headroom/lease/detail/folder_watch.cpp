#include "headroom/lease/detail/folder_watch.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

namespace headroom::lease::detail {
namespace {

// A new lease frees no memory, and grants change with every lease.
bool matters(const inotify_event& event) {
  const std::string_view name = event.len > 0 ? event.name : "";
  const bool ended = (event.mask & (IN_DELETE | IN_CLOSE_WRITE)) != 0;
  if ((event.mask & (IN_Q_OVERFLOW | IN_DELETE_SELF | IN_MOVE_SELF)) != 0) return true;
  return name.ends_with(".wait") || (ended && name.ends_with(".lease"));
}

}  // namespace

FolderWatch::FolderWatch(const std::filesystem::path& folder)
    : changes_(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK)),
      cancelled_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  // IN_CLOSE_WRITE: the last descriptor of a lease closes when its last holder ends.
  constexpr std::uint32_t kEvents = IN_MOVED_TO | IN_DELETE | IN_CLOSE_WRITE | IN_ONLYDIR;
  if (::inotify_add_watch(changes_.get(), folder.c_str(), kEvents) < 0) changes_.close();
}

bool FolderWatch::wait(Seconds longest, const std::stop_token& cancel) {
  constexpr Seconds kBlind{0.1};
  const std::stop_callback wake(cancel, [this] { ::eventfd_write(cancelled_.get(), 1); });
  const bool blind = !changes_.is_open();
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::clamp(
                                      longest, Seconds(0), blind ? kBlind : Seconds(3600)));
  while (!cancel.stop_requested()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
    if (left <= 0) return blind;
    std::array<pollfd, 2> sources{{{cancelled_.get(), POLLIN, 0}, {changes_.get(), POLLIN, 0}}};
    if (::poll(sources.data(), sources.size(), static_cast<int>(left)) > 0 && read_changes())
      return true;
  }
  return false;
}

bool FolderWatch::read_changes() {
  alignas(inotify_event) std::array<char, 4096> buffer;  // NOLINT: filled by read
  bool any = false;
  while (true) {
    const ssize_t got = ::read(changes_.get(), buffer.data(), buffer.size());
    if (got <= 0) return any;
    for (ssize_t at = 0; at < got;) {
      const auto* event = reinterpret_cast<const inotify_event*>(buffer.data() + at);  // NOLINT
      any = any || matters(*event);
      at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
    }
  }
}

}  // namespace headroom::lease::detail
