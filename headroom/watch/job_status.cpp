#include "headroom/watch/job_status.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "headroom/base/descriptor.h"
#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/base/json.h"
#include "headroom/base/text.h"
#include "headroom/lease/lease.h"

namespace headroom::watch {
namespace {

namespace fs = std::filesystem;

// A home folder may be shared by machines and containers, where the same process number means
// another process. Together these two name the place where it is valid.
struct Place {
  std::string boot_id;
  std::uint64_t pid_namespace = 0;
  bool operator==(const Place&) const = default;
};

Place this_place() {
  return {std::string(trim(read_file("/proc/sys/kernel/random/boot_id").value_or(""))),
          lease::this_pid_namespace()};
}

long long unix_ms(WallTime when) {
  return std::chrono::floor<std::chrono::milliseconds>(when.time_since_epoch()).count();
}

std::string text_of(const JobStatus& job) {
  const Place place = this_place();
  return to_line(Json{{"schema", 1},
                      {"pid", job.pid},
                      {"start_ticks", job.start_ticks},
                      {"boot_id", place.boot_id},
                      {"pid_namespace", place.pid_namespace},
                      {"what", job.what},
                      {"gpus", job.gpus},
                      {"step", or_null(job.step)},
                      {"steps", or_null(job.steps)},
                      {"loss", or_null(job.loss)},
                      {"micro_batch", or_null(job.micro_batch)},
                      {"batch", or_null(job.batch)},
                      {"plan", job.plan},
                      {"ooms_survived", job.ooms_survived},
                      {"rows_per_s", or_null(job.rows_per_s)},
                      {"updated_unix_ms", unix_ms(job.updated)}}) +
         "\n";
}

template <typename Value>
std::optional<Value> optional_of(const Json& value) {
  return value.is_null() ? std::optional<Value>() : value.get<Value>();
}

struct Written {
  JobStatus job;
  Place place;
};

// Throws InputError for a time that no clock shows: it would not fit into WallTime.
WallTime wall_time(long long unix_ms, const std::string& source) {
  constexpr long long kMost = 1LL << 42;  // the year 2109
  if (unix_ms < 0 || unix_ms > kMost)
    throw InputError(source, "expected a time, received " + std::to_string(unix_ms));
  return WallTime(std::chrono::milliseconds(unix_ms));
}

// Throws InputError or Json::exception for text that is not a status.
Written status_in(const std::string& text, const std::string& source) {
  const Json json = parse_json(text, source);
  JobStatus job;
  job.pid = json.at("pid").get<pid_t>();
  job.start_ticks = json.at("start_ticks").get<long long>();
  job.what = without_controls(json.at("what").get<std::string>());
  for (const Json& uuid : json.at("gpus"))
    job.gpus.push_back(without_controls(uuid.get<std::string>()));
  job.step = optional_of<long long>(json.at("step"));
  job.steps = optional_of<long long>(json.at("steps"));
  job.loss = optional_of<double>(json.at("loss"));
  job.micro_batch = optional_of<long long>(json.at("micro_batch"));
  job.batch = optional_of<long long>(json.at("batch"));
  job.plan = without_controls(json.at("plan").get<std::string>());
  job.ooms_survived = json.at("ooms_survived").get<std::uint64_t>();
  job.rows_per_s = optional_of<double>(json.at("rows_per_s"));
  job.updated = wall_time(json.at("updated_unix_ms").get<long long>(), source);
  return {std::move(job),
          {json.at("boot_id").get<std::string>(), json.at("pid_namespace").get<std::uint64_t>()}};
}

// "4242-81234567.json"; std::nullopt for other files.
std::optional<ProcessIdentity> process_of(const fs::path& file) {
  if (file.extension() != ".json") return {};
  const std::string stem = file.stem().string();
  const auto parts = split(stem, '-');
  if (parts.size() != 2) return {};
  const auto pid = to_integer(parts[0]), ticks = to_integer(parts[1]);
  if (!pid || !ticks || *pid <= 0) return {};
  return ProcessIdentity{static_cast<pid_t>(*pid), *ticks};
}

// Without flushing it to the disk, which can take a second and would delay the training: after a
// power failure its process is gone, too.
void replace(const fs::path& file, const std::string& text, pid_t writer) {
  // A name that `headroom clean` recognises as left behind.
  const fs::path fresh = file.string() + "." + std::to_string(writer) + "-0.tmp";
  try {
    Descriptor out(::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    if (!out.is_open()) return;
    write_all(out.get(), text, fresh);
    if (::close(out.release()) != 0 || std::rename(fresh.c_str(), file.c_str()) != 0)
      ::unlink(fresh.c_str());
  } catch (const WriteError&) {
    ::unlink(fresh.c_str());
  }
}

bool differs_in_more_than_progress(const JobStatus& a, const JobStatus& b) {
  return a.what != b.what || a.gpus != b.gpus || a.plan != b.plan ||
         a.micro_batch != b.micro_batch || a.ooms_survived != b.ooms_survived;
}

bool is_at_its_end(const JobStatus& job) {
  return job.step && job.step == job.steps;
}

// JSON has no NaN, and a reader needs no infinite loss to see that a run went wrong.
std::optional<double> finite(std::optional<double> value) {
  return value && std::isfinite(*value) ? value : std::nullopt;
}

constexpr auto kDay = std::chrono::hours(24);

// A process that has ended leaves its file behind if it was killed. A file from elsewhere belongs
// to a process that cannot be looked up: it is old when it has not been written for a day.
bool is_over(const Written& found, const Place& here, const ProcessTable& processes) {
  if (found.place == here) return !processes.alive({found.job.pid, found.job.start_ticks});
  return std::chrono::system_clock::now() - found.job.updated > kDay;
}

// For a file that does not say where its process is.
bool is_a_day_old(const fs::path& file) {
  std::error_code error;
  const auto written = fs::last_write_time(file, error);
  return !error && fs::file_time_type::clock::now() - written > kDay;
}

}  // namespace

std::filesystem::path status_folder() {
  return state_dir() / "status";
}

JobStatusPublisher::JobStatusPublisher(const fs::path& folder)
    : self_(this_process()),
      file_(folder /
            (std::to_string(self_.pid) + "-" + std::to_string(self_.start_ticks) + ".json")) {
  try {
    (void)job_statuses(folder);
  } catch (const std::exception&) {  // they stay until the next reader
  }
}

JobStatusPublisher::~JobStatusPublisher() {
  if (written_ && ::getpid() == self_.pid) ::unlink(file_.c_str());
}

void JobStatusPublisher::publish(JobStatus status, Clock::time_point now) noexcept {
  constexpr Seconds kSeldom{1.0};
  const bool is_soon = written_ && now - *written_ < kSeldom;
  const bool is_news = differs_in_more_than_progress(status, last_) ||
                       (is_at_its_end(status) && !is_at_its_end(last_));
  if (::getpid() != self_.pid || (is_soon && !is_news)) return;
  try {
    status.pid = self_.pid;
    status.start_ticks = self_.start_ticks;
    status.updated = std::chrono::system_clock::now();
    status.loss = finite(status.loss);
    status.rows_per_s = finite(status.rows_per_s);
    written_ = now;
    std::error_code ignored;
    fs::create_directories(file_.parent_path(), ignored);
    fs::permissions(file_.parent_path(), fs::perms::owner_all, ignored);
    replace(file_, text_of(status), self_.pid);
    last_ = std::move(status);
  } catch (const std::exception&) {  // see the header: the others only know less
  }
}

std::vector<JobStatus> job_statuses(const fs::path& folder, const ProcessTable& processes) {
  std::vector<JobStatus> jobs;
  const Place here = this_place();
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const auto process = process_of(entry->path());
    const auto text = process ? read_file(entry->path()) : std::nullopt;
    if (!text) continue;
    try {
      Written found = status_in(*text, entry->path().string());
      if (ProcessIdentity{found.job.pid, found.job.start_ticks} != *process) continue;
      if (is_over(found, here, processes))
        ::unlink(entry->path().c_str());
      else if (found.place == here)
        jobs.push_back(std::move(found.job));
    } catch (const std::exception&) {
      // A file of another version, or one cut off by a power failure.
      if (!processes.alive(*process) && is_a_day_old(entry->path()))
        ::unlink(entry->path().c_str());
    }
  }
  std::sort(jobs.begin(), jobs.end(),
            [](const JobStatus& a, const JobStatus& b) { return a.pid < b.pid; });
  return jobs;
}

}  // namespace headroom::watch
