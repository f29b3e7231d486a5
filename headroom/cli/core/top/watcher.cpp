#include "headroom/cli/core/top/watcher.h"

#include <utility>

#include "headroom/base/error.h"
#include "headroom/base/interrupt.h"
#include "headroom/lease/ledger.h"

namespace headroom::cli {
namespace {

// In front of the other warnings, of which a low screen shows only the first.
std::shared_ptr<const Picture> with_warning(Picture old, const std::string& why) {
  old.warnings.insert(old.warnings.begin(), "the last look at the machine failed: " + why);
  return std::make_shared<const Picture>(std::move(old));
}

}  // namespace

Watcher::Watcher(const std::string& gpus, Seconds interval, std::function<void()> tell)
    : devices_(machine::devices_to_look_at(gpus)),
      interval_(interval),
      tell_(std::move(tell)),
      // Only when asked: a sample from an interval ago would be shown as present.
      sampler_(gpu::make_source(devices_), {.keep_sampling = false}),
      thread_([this](const std::stop_token& stop) { work(stop); }) {}

Picture Watcher::look() {
  // A driver that hangs is waited for no longer than this; the cards' ages show it. The end of the
  // program waits as long, too.
  constexpr Seconds kPatience{0.5};
  lease::Contents leases = lease::contents_now();
  gpu::Machine sample = sampler_.fresh(kPatience);
  const bool is_listed = !sample.cards.empty();
  machine::Look look =
      machine::look_at_sample(std::move(sample), devices_, std::move(leases), cuda_);
  if (is_listed) cuda_ = look.cuda;
  Picture picture = picture_of(std::move(look),
                               watch::job_statuses(watch::status_folder(), processes_), processes_);
  history_.add(picture.machine, picture.taken);
  picture.history = history_;
  picture.interval = interval_;
  return picture;
}

void Watcher::keep(std::shared_ptr<const Picture> picture) {
  const std::lock_guard lock(guard_);
  latest_ = std::move(picture);
}

void Watcher::fail() {
  const std::lock_guard lock(guard_);
  failure_ = std::current_exception();
}

// In a handler. The next look may succeed; but a failure of the first is reported before the screen
// is taken.
void Watcher::go_on_with(const std::shared_ptr<const Picture>& old, const std::string& why) {
  if (old)
    keep(with_warning(*old, why));
  else
    fail();
}

void Watcher::work(const std::stop_token& stop) {
  std::shared_ptr<const Picture> good;
  auto next = Clock::now();
  while (!stop.stop_requested()) {
    try {
      good = std::make_shared<const Picture>(look());
      keep(good);
    } catch (const UsageError&) {  // a wrong card stays wrong
      fail();
    } catch (const Error& error) {
      go_on_with(good, error.sentence());
    } catch (const std::exception& error) {
      go_on_with(good, error.what());
    }
    changed_.notify_all();
    tell_();
    // After a suspension or a slow look the missed samples are not made up for.
    next = std::max(next + std::chrono::duration_cast<Clock::duration>(interval_), Clock::now());
    if (!sleep_for(next - Clock::now(), stop)) return;
  }
}

std::shared_ptr<const Picture> Watcher::latest() const {
  const std::lock_guard lock(guard_);
  if (failure_) std::rethrow_exception(failure_);
  return latest_;
}

std::shared_ptr<const Picture> Watcher::first(Seconds patience) const {
  std::unique_lock lock(guard_);
  changed_.wait_for(lock, patience, [&] { return latest_ || failure_; });
  if (failure_) std::rethrow_exception(failure_);
  return latest_;
}

}  // namespace headroom::cli
