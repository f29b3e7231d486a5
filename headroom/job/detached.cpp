#include "headroom/job/detached.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>

#include "headroom/base/descriptor.h"
#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/base/json.h"
#include "headroom/base/text.h"

namespace headroom::job {
namespace {

namespace fs = std::filesystem;

// Older records are removed when the next job is detached.
constexpr std::chrono::hours kKeptFor{14 * 24};

std::optional<DetachedJob> g_this_job;  // in the detached process

long long unix_ms(WallTime time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count();
}

std::string text_of(const DetachedJob& job) {
  return headroom::to_line({{"schema", 1},
                            {"id", job.id},
                            {"pid", job.supervisor.pid},
                            {"start_ticks", job.supervisor.start_ticks},
                            {"command", job.command},
                            {"started_unix_ms", unix_ms(job.started)},
                            {"exit_code", job.exit_code ? Json(*job.exit_code) : Json()}}) +
         "\n";
}

void save(const DetachedJob& job) {
  write_file_atomically(job.output.parent_path() / "job.json", text_of(job));
}

std::optional<DetachedJob> read(const fs::path& folder) {
  const auto text = read_file(folder / "job.json");
  if (!text) return {};
  try {
    const Json json = Json::parse(*text);
    DetachedJob job;
    job.id = folder.filename();
    job.supervisor = {json.at("pid").get<pid_t>(), json.at("start_ticks").get<long long>()};
    job.command = json.at("command").get<std::vector<std::string>>();
    job.started = WallTime(std::chrono::milliseconds(json.at("started_unix_ms").get<long long>()));
    if (!json.at("exit_code").is_null()) job.exit_code = json.at("exit_code").get<int>();
    job.output = folder / "output";
    return job;
  } catch (const Json::exception&) {
    return {};
  }
}

// "7f3a9c1e", in a folder of its own that only its owner may read.
fs::path make_folder() {
  std::error_code ignored;  // making the folder below reports the reason
  fs::create_directories(detached_jobs_dir(), ignored);
  std::random_device random;
  for (int tries = 0;; ++tries) {
    std::array<char, 16> id{};
    std::snprintf(id.data(), id.size(), "%08x", random());
    fs::path folder = detached_jobs_dir() / id.data();
    if (::mkdir(folder.c_str(), 0700) == 0) return folder;
    if (errno != EEXIST || tries == 100) throw WriteError("run", write_failure(folder, errno));
  }
}

void remove_old() {
  const WallTime now = std::chrono::system_clock::now();
  std::error_code ignored;
  for (const DetachedJob& job : detached_jobs())
    if (!job.is_running() && now - job.started > kKeptFor)
      fs::remove_all(job.output.parent_path(), ignored);
}

std::string all_of(int pipe) {
  std::string text;
  std::array<char, 512> part{};
  ssize_t size = 0;
  while ((size = ::read(pipe, part.data(), part.size())) > 0 || (size < 0 && errno == EINTR))
    if (size > 0) text.append(part.data(), static_cast<std::size_t>(size));
  return text;
}

void leave_terminal(int output) {
  ::setsid();
  const Descriptor nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  ::dup2(nothing.get(), STDIN_FILENO);
  for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) ::dup2(output, stream);
}

}  // namespace

bool DetachedJob::is_running() const {
  const auto now = ProcessTable().stat(supervisor.pid);
  return !exit_code && now && now->identity == supervisor && now->state != 'Z';
}

fs::path detached_jobs_dir() {
  return state_dir() / "jobs";
}

std::optional<DetachedJob> detach(const std::vector<std::string>& command) {
  remove_old();
  DetachedJob job{.id = {},
                  .supervisor = {},
                  .command = command,
                  .started = std::chrono::system_clock::now(),
                  .exit_code = {},
                  .output = make_folder() / "output"};
  job.id = job.output.parent_path().filename();
  const Descriptor output(
      ::open(job.output.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  std::array<int, 2> ends{};
  if (!output.is_open() || ::pipe2(ends.data(), O_CLOEXEC) != 0)
    throw WriteError("run", write_failure(job.output, errno));
  const Descriptor told(ends[0]);
  Descriptor tell(ends[1]);
  const pid_t child = ::fork();
  if (child < 0)
    throw BusyError("run", "cannot make a process: " + std::string(std::strerror(errno)));
  if (child == 0) {
    leave_terminal(output.get());
    job.supervisor = this_process();
    try {
      save(job);
    } catch (const Error& error) {
      write_all(tell.get(), error.sentence(), job.output);
      ::_exit(1);
    }
    g_this_job = job;
    return {};  // with `tell` closed: the parent goes on
  }
  tell.close();
  const std::string why_not = all_of(told.get());  // until the child is ready, or dead
  if (auto started = read(job.output.parent_path())) return started;
  std::error_code ignored;
  fs::remove_all(job.output.parent_path(), ignored);
  throw WriteError("run",
                   why_not.empty() ? "the detached process ended before the job began" : why_not);
}

void note_end(int exit_code) {
  if (!g_this_job) return;
  g_this_job->exit_code = exit_code;
  save(*g_this_job);
}

DetachedJob detached_job(const std::string& id) {
  const bool is_name = !id.empty() && id.find('/') == std::string::npos && id[0] != '.';
  if (is_name)
    if (auto job = read(detached_jobs_dir() / id)) return *std::move(job);
  std::vector<std::string> known;
  for (const DetachedJob& job : detached_jobs()) known.push_back(job.id);
  throw UsageError(expectation("attach", "the ID of a detached job", id,
                               nearest(id, known).value_or("headroom attach")));
}

std::vector<DetachedJob> detached_jobs() {
  std::vector<DetachedJob> jobs;
  std::error_code none;
  for (const auto& folder : fs::directory_iterator(detached_jobs_dir(), none))
    if (auto job = read(folder.path())) jobs.push_back(*std::move(job));
  std::sort(jobs.begin(), jobs.end(),
            [](const DetachedJob& a, const DetachedJob& b) { return a.started < b.started; });
  return jobs;
}

}  // namespace headroom::job
